// The link test of GPU ranks, over a driver that is none and kernels that the host plays.
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <vector>

#include "executor/link/link_probe.h"
#include "executor/link/link_test.h"
#include "testing/fake_gpu_ranks.h"
#include "transport/command_queue.h"

namespace tilewire {
namespace {

// The kernels of one rank, in the memory that they are given. They look ahead of nothing: an epoch at a time.
class PlayedKernels {
 public:
  PlayedKernels(const DeviceRank& rank, const CallFrame& frame)
      : rank_(rank), frame_(frame), rings_(std::begin(rank.rings), std::end(rank.rings)) {}

  LinkOutcome run(const LinkSeries& series) {
    LinkOutcome outcome;
    for (uint64_t i = 0; i < series.epochs; ++i) {
      const Epoch e = rank_.state->epoch + 1;
      if (frame_.me == series.from) send(series, e);
      if (frame_.me == series.to) {
        outcome.wrong += receive(series, e);
        post(Ring::send, link_signal(frame_, series.from));
      }
      if (frame_.me == series.from) wait(link_word(frame_, series.to, 0), e);
      for (int32_t r = 0; r < kRings; ++r) post(Ring{r}, {.kind = CommandKind::call_end, .epoch = e});
      wait(FlagLayout::sent(), e);
      rank_.state->epoch = e;
      if (series.chunks == 0 && frame_.me == series.from) outcome.trip_ns.push_back(8000 + 1000 * i);
    }
    outcome.ns = frame_.me == series.from ? 20'000'000 : 0;
    return outcome;
  }

 private:
  void post(Ring ring, const Command& command) {
    while (!rings_[static_cast<size_t>(ring)].try_post(command)) std::this_thread::yield();
  }
  uint64_t* chunk(const LinkSeries& series, Epoch e, int32_t c) const {
    std::byte* arena = rank_.arenas[static_cast<size_t>(frame_.me.value)];
    return reinterpret_cast<uint64_t*>(arena + frame_.arena.half_offset(e) + c * series.chunk_bytes);
  }
  void wait(uint32_t word, Epoch least) const {
    std::byte* base =
        word == FlagLayout::sent() ? rank_.control_page : rank_.arenas[static_cast<size_t>(frame_.me.value)];
    const std::atomic_ref flag(*reinterpret_cast<uint64_t*>(base + frame_.arena.word_offset(word)));
    const SteadyTime limit = deadline_in(std::chrono::seconds(20));
    while (flag.load() < least && steady_now() < limit) std::this_thread::yield();
    EXPECT_GE(flag.load(), least);
  }
  void send(const LinkSeries& series, Epoch e) {
    for (int32_t c = 0; c < series.chunks; ++c) {
      uint64_t* words = chunk(series, e, c);
      for (int64_t i = 0; i < series.chunk_bytes / 8; ++i) words[i] = link_content(series.seed, e, c, i);
      post(Ring::send, link_write(frame_, series, c));
    }
    if (series.chunks == 0) post(Ring::send, link_signal(frame_, series.to));
  }
  uint64_t receive(const LinkSeries& series, Epoch e) const {
    if (series.chunks == 0) wait(link_word(frame_, series.from, 0), e);
    uint64_t wrong = 0;
    for (int32_t c = 0; c < series.chunks; ++c) {
      wait(link_word(frame_, series.from, c), e);
      const uint64_t* words = chunk(series, e, c);
      const int64_t last = series.chunk_bytes / 8 - 1;
      wrong += series.seed == 0 || words[last] == link_content(series.seed, e, c, last) ? 0 : 1;
    }
    return wrong;
  }

  DeviceRank rank_;
  CallFrame frame_;
  std::vector<CommandProducer> rings_;
};

LinkKernel play(const DeviceRank& rank, const CallFrame& frame) {
  const auto kernels = std::make_shared<PlayedKernels>(rank, frame);
  return [kernels](const LinkSeries& series) { return kernels->run(series); };
}

Options link_options(const HostWire& wire) {
  Options o = gpu_options();
  o.layout = "1,1";
  o.wire = wire.socket();
  o.cuda_device = 0;
  o.max_chunks_per_source = LinkProbe::kChunks;
  return o;
}

using LinkOfGpus = GpuSession;

TEST_F(LinkOfGpus, KernelsMeasureAndWhatTheyFindIsToldToAllRanks) {
  HostWire wire(kJobSecret);
  expect_all_well(run_gpu_ranks(
      2, link_options(wire),
      [](Session& s) {
        LinkProbe probe(s, play);
        const LinkChecks torn = probe.ordering(Rank{0}, Rank{1}, 17'000, 256);  // in two parts
        EXPECT_EQ(torn.messages, 17'152u);
        EXPECT_EQ(torn.wrong, 2u) << "on rank " << s.rank().value;
        EXPECT_EQ(probe.ordering(Rank{1}, Rank{0}, 300, 256).wrong, 0u);
        // Trips take 28 us when the first 20 have been left out, and a microsecond more each time.
        const LinkLatency latency = probe.latency(Rank{1}, Rank{0}, 101);
        EXPECT_DOUBLE_EQ(latency.median_us, 39);
        EXPECT_DOUBLE_EQ(latency.p99_us, 63.5);
        EXPECT_DOUBLE_EQ(probe.bandwidth_gbps(Rank{0}, Rank{1}, 4096, 0.05), 4 * 4096 * 8 / 20e6);
      },
      [](int32_t r, Options& o) {
        if (r == 0) o.fault = "tear:nth=1;tear:nth=16900";
      }));
}

TEST_F(LinkOfGpus, TheReportSaysThatItWasTheirMemory) {
  HostWire wire(kJobSecret);
  const Options options = link_options(wire);
  ThreadStore store;
  std::vector<std::string> reports(2);
  std::vector<std::thread> ranks;
  for (int32_t r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      SessionSetup setup{.options = options,
                         .store = &store,
                         .threads = {},
                         .gpu_driver = &FakeGpu::driver(),
                         .roll_call = full_roll_call()};
      setup.options.rank = r;
      setup.options.world_size = 2;
      reports[static_cast<size_t>(r)] = run_link_test(setup, {.seconds = 0.001, .messages = 300}, play).json;
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(reports[0], reports[1]);
  const auto report = nlohmann::json::parse(reports[0]);
  EXPECT_EQ(report.at("memory"), "GPU");
  for (const auto& rank : report.at("ranks")) {
    EXPECT_NE(rank.at("gpu").at("pci"), "");
    EXPECT_TRUE(rank.at("gpu").at("needs_flush").is_boolean());
  }
  for (const auto& link : report.at("links")) EXPECT_EQ(link.at("wrong_messages"), 0);
}

TEST_F(LinkOfGpus, RanksThatItIsNotAboutGoAlongWithItsEpochs) {
  HostWire wire(kJobSecret);
  Options options = link_options(wire);
  options.layout = "1,1,1";
  expect_all_well(run_gpu_ranks(3, options, [](Session& s) {
    LinkProbe probe(s, play);
    for (const auto& [from, to] : {std::pair{0, 1}, std::pair{2, 0}, std::pair{1, 2}}) {
      EXPECT_EQ(probe.ordering(Rank{from}, Rank{to}, 17'000, 256).wrong, 0u);
      EXPECT_GT(probe.latency(Rank{from}, Rank{to}, 300).median_us, 0);
    }
  }));
}

TEST_F(LinkOfGpus, WithoutAKernelItIsRefused) {
  HostWire wire(kJobSecret);
  for (const std::string& e : run_gpu_ranks(2, link_options(wire), [](Session& s) { LinkProbe probe(s); })) {
    EXPECT_NE(e.find("there is no kernel that measures links"), std::string::npos) << e;
    EXPECT_NE(e.find("TILEWIRE_DEVICE=cpu"), std::string::npos) << e;
  }
}

TEST_F(LinkOfGpus, AKernelThatGivesUpEndsItOnAllRanksByName) {
  HostWire wire(kJobSecret);
  const auto gives_up = [](const DeviceRank& rank, const CallFrame& frame) -> LinkKernel {
    if (frame.me != Rank{1}) return [](const LinkSeries&) { return LinkOutcome{}; };
    return [rank, frame](const LinkSeries&) {
      *rank.fault = {
          .op = rank.op, .rank = 1, .role = 1, .word = link_word(frame, Rank{0}, 3), .expected = 7, .epoch = 7};
      std::atomic_ref(*reinterpret_cast<uint64_t*>(rank.arenas[1] + ControlPage::kAbort)).store(1);
      std::atomic_ref(rank.fault->state).store(1);
      return LinkOutcome{.has_given_up = true};
    };
  };
  const auto errors = run_gpu_ranks(2, link_options(wire), [&](Session& s) {
    LinkProbe probe(s, gives_up);
    probe.ordering(Rank{0}, Rank{1}, 300, 256);
  });
  for (const std::string& e : errors) {
    EXPECT_NE(e.find("rank 1 waited 20 s for message of chunk 3 of rank 0"), std::string::npos) << e;
    EXPECT_NE(e.find("link test, epoch 7, role receiver"), std::string::npos) << e;
  }
}

}  // namespace
}  // namespace tilewire

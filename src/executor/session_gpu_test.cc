// Sessions of GPU ranks over a driver that is none: what the host does, without kernels.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "executor/call.h"
#include "executor/thread_cluster.h"
#include "memory/cuda/fake_driver.h"
#include "memory/words.h"

namespace tilewire {
namespace {

constexpr int64_t kPage = int64_t{2} << 20;

Options gpu_options() {
  Options o;
  o.device = "cuda";
  o.arena_initial_bytes = kPage;
  o.arena_reserve_bytes = 16 * kPage;
  o.user_arena_reserve_bytes = 16 * kPage;
  o.max_chunks_per_source = 16;
  o.deadline_s = 20;
  o.connect_deadline_s = 20;
  return o;
}

// Ranks of one host, each with an arena of its own as between processes. "" or the error each one ended with.
std::vector<std::string> run_gpu_ranks(int32_t ranks, const Options& options, const std::function<void(Session&)>& body,
                                       const std::function<void(int32_t, Options&)>& adjust = {}) {
  ThreadStore store;
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        SessionSetup setup{.options = options, .store = &store, .threads = {}, .gpu_driver = &FakeGpu::driver()};
        setup.options.rank = r;
        setup.options.world_size = ranks;
        if (adjust) adjust(r, setup.options);
        const auto session = Session::create(setup);
        body(*session);
        session->close();
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

class GpuSession : public ::testing::Test {
 protected:
  void SetUp() override { FakeGpu::start(); }
  void TearDown() override {
    EXPECT_EQ(FakeGpu::live_text(), "");
    EXPECT_EQ(FakeGpu::broken_rules(), 0);
  }
  static void expect_all_well(const std::vector<std::string>& errors) {
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
};

uint64_t& device_word(std::byte* at) { return *reinterpret_cast<uint64_t*>(at); }

TEST_F(GpuSession, RanksOfANodeReachEachOthersMemoryAlsoWhenItHasGrown) {
  expect_all_well(run_gpu_ranks(3, gpu_options(), [](Session& s) {
    const int32_t me = s.rank().value;
    Call call(s, "grow");
    call.begin("grow");
    call.agree("grow", 5 * kPage);
    call.end();
    EXPECT_GE(s.arena().half_bytes(), 5 * kPage);
    const int64_t last = s.arena().layout().half_offset(1) + 5 * kPage - 64;
    for (int32_t p = 0; p < 3; ++p)
      device_word(s.arena().peer(Rank{p}) + last + int64_t{8} * me) =
          uint64_t{100} * static_cast<uint64_t>(me) + static_cast<uint64_t>(p);
    s.control().barrier("written", s.deadline());
    for (int32_t p = 0; p < 3; ++p) {
      EXPECT_EQ(device_word(s.arena().base() + last + int64_t{8} * p),
                uint64_t{100} * static_cast<uint64_t>(p) + static_cast<uint64_t>(me))
          << me << " of " << p;
    }
    s.control().barrier("read", s.deadline());
  }));
}

TEST_F(GpuSession, TheUserAreaGrowsOnOneRankAlone) {
  expect_all_well(run_gpu_ranks(2, gpu_options(), [](Session& s) {
    std::byte* at = s.rank() == Rank{1} ? s.allocate_user(3 * kPage) : nullptr;
    Call call(s, "grow");
    call.begin("grow");
    call.agree("grow", 5 * kPage);
    call.end();
    if (at != nullptr) {
      at[3 * kPage - 1] = std::byte{7};
      s.free_user(at);
    }
    s.control().barrier("grown", s.deadline());
  }));
}

TEST_F(GpuSession, GpusAreDealtOutInTurnAndSharesAreChecked) {
  std::vector<int32_t> devices(3), sms(3);
  expect_all_well(run_gpu_ranks(
      3, gpu_options(),
      [&](Session& s) {
        devices[static_cast<size_t>(s.rank().value)] = s.gpu()->device();
        sms[static_cast<size_t>(s.rank().value)] = s.gpu()->sms();
      },
      [](int32_t r, Options& o) { o.sms = r == 1 ? 44 : 0; }));
  EXPECT_EQ(devices, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_EQ(sms, (std::vector<int32_t>{132, 44, 132}));
  const auto errors = run_gpu_ranks(
      2, gpu_options(), [](Session&) {}, [](int32_t r, Options& o) { o.sms = 132 + r; });
  EXPECT_NE(errors[1].find("sms = 133"), std::string::npos) << errors[1];
  EXPECT_NE(errors[0].find("TILEWIRE_SMS"), std::string::npos) << "the others hear of it: " << errors[0];
}

TEST_F(GpuSession, CpuAndGpuRanksDoNotJoin) {
  const auto errors = run_gpu_ranks(
      2, gpu_options(), [](Session&) {},
      [](int32_t r, Options& o) {
        if (r == 1) o.device = "cpu";
      });
  for (const std::string& e : errors) EXPECT_NE(e.find("device=cuda"), std::string::npos) << e;
}

TEST_F(GpuSession, SeveralNodesAreRefusedByName) {
  Options o = gpu_options();
  o.layout = "1,1";
  for (const std::string& e : run_gpu_ranks(2, o, [](Session&) {})) {
    EXPECT_NE(e.find("no transport joins GPU ranks"), std::string::npos) << e;
  }
}

TEST_F(GpuSession, OperandsOfTheHostAreRefused) {
  for (const std::string& e : run_gpu_ranks(2, gpu_options(), [](Session& s) { s.check_operands_on(false, "toy"); })) {
    EXPECT_NE(e.find("host memory"), std::string::npos) << e;
  }
}

TEST_F(GpuSession, KernelsGetTheArenasOfTheNodeAndTheEpochThatOptionsSay) {
  Options o = gpu_options();
  o.first_epoch = 7;
  expect_all_well(run_gpu_ranks(2, o, [](Session& s) {
    const DeviceRank rank = s.device_rank({.op = "toy"});
    EXPECT_EQ(rank.arenas[static_cast<size_t>(s.rank().value)], s.arena().base());
    EXPECT_EQ(rank.arenas[1 - static_cast<size_t>(s.rank().value)], s.arena().peer(Rank{1 - s.rank().value}));
    EXPECT_EQ(rank.state->epoch, 6u);
    EXPECT_EQ(rank.state->busy, 0u);
    EXPECT_EQ(rank.timeout_ns, 20'000'000'000u);
    EXPECT_EQ(rank.control_page, s.arena().control());
    s.control().barrier("seen", s.deadline());
  }));
}

TEST_F(GpuSession, RingsLieWhereKernelsReachThem) {
  expect_all_well(run_gpu_ranks(1, gpu_options(), [](Session& s) {
    const CommandRing ring = s.gpu()->make_ring(static_cast<int32_t>(Ring::send), 16);
    const ArrivalRing arrivals(s.gpu()->make_ring(GpuRank::kArrivalRing, 32));
    const DeviceRank rank = s.gpu()->device_rank(1);
    const RingMemory& seen = rank.rings[static_cast<int32_t>(Ring::send)];
    EXPECT_EQ(seen.entry_count, 16u);
    EXPECT_EQ(rank.arrivals.entry_count, 32u);
    EXPECT_EQ(rank.rings[static_cast<int32_t>(Ring::call)].entry_count, 0u);
    // The memory of the fake driver is at one address for both sides.
    EXPECT_EQ(seen.header, ring.memory().header);
    CommandProducer producer(seen);
    PackedCommand taken;
    EXPECT_TRUE(producer.try_post(PackedCommand{5, 6}));
    CommandConsumer consumer(ring.memory());
    EXPECT_TRUE(consumer.try_take(taken));
    EXPECT_EQ(taken.second, 6u);
  }));
}

// As a kernel writes it; the abort word of the arena comes with it.
void leave_record(Session& s, FaultRecord& record, const FaultRecord& what) {
  record = what;
  record.state = FaultRecord::kNone;
  device_word(s.arena().base() + ControlPage::kAbort) = 1;
  std::atomic_ref(record.state).store(FaultRecord::kComplete);
}

TEST_F(GpuSession, WhatAKernelLeavesIsAnErrorOfAllRanksWithNamesInIt) {
  constexpr const char* kRoles[] = {"none", "call", "compute"};
  constexpr const char* kFamilies[kWordFamilies] = {"shard_arrived"};
  const auto errors = run_gpu_ranks(2, gpu_options(), [&](Session& s) {
    const DeviceRank rank = s.device_rank({.op = "toy", .roles = kRoles, .family_names = kFamilies});
    if (s.rank() == Rank{0}) {
      const uint32_t word = s.arena().layout().flags.chunk(0, Rank{1}, Chunk{3});
      leave_record(s, *rank.fault,
                   {.kind = KernelFaultKind::deadline,
                    .op = rank.op,
                    .role = 2,
                    .cta = 9,
                    .word = word,
                    .expected = 5,
                    .seen = 4,
                    .epoch = 5});
    }
    const auto limit = steady_now() + std::chrono::seconds(5);
    while (!s.is_dead() && steady_now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(abort_reason(s.arena().control()), 1u) << "kernels of this rank are told";
    s.check();
  });
  for (const std::string& e : errors) {
    for (const char* part : {"rank 0 waited 20 s", "shard_arrived of chunk 3 of rank 1", "epoch 5 (seen 4)", "toy",
                             "role compute", "CTA 9"}) {
      EXPECT_NE(e.find(part), std::string::npos) << part << " in: " << e;
    }
  }
}

TEST_F(GpuSession, RanksThatRunDifferentCallsAreToldBothTexts) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    const DeviceRank rank = s.device_rank({.op = "toy", .mismatch_advice = "make the same calls"});
    s.kernel_faults().add_text(11, "toy of 3 rows");
    s.kernel_faults().add_text(12, "toy of 4 rows");
    if (s.rank() == Rank{1}) {
      leave_record(s, *rank.fault,
                   {.kind = KernelFaultKind::mismatch,
                    .op = rank.op,
                    .role = 1,
                    .word = 0,
                    .expected = 11,
                    .seen = 12,
                    .epoch = 2});
    }
    s.check();  // whether the news has come or not: the abort word of the arena says that there will be some
    s.await_verdict();
    s.check();
  });
  for (const std::string& e : errors) {
    EXPECT_NE(e.find("rank 0: toy of 4 rows | rank 1: toy of 3 rows; make the same calls"), std::string::npos) << e;
  }
}

// A kernel that has left its call on a peer's word is not taken for one that has ended well.
TEST_F(GpuSession, CheckWaitsForTheNewsWhereAKernelHasGivenUp) {
  const auto errors = run_gpu_ranks(2, gpu_options(), [](Session& s) {
    s.control().barrier("ready", s.deadline());
    if (s.rank() == Rank{0}) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      s.control().send_abort(ErrorKind::deadline, "late news");
      s.await_verdict();
    } else {
      device_word(s.arena().base() + ControlPage::kAbort) = 1;
    }
    s.check();
  });
  for (const std::string& e : errors) EXPECT_NE(e.find("late news"), std::string::npos) << e;
}

TEST_F(GpuSession, CreationThatFailsAnywhereLeavesNothing) {
  int64_t n = 1;
  for (; n < 200; ++n) {
    FakeGpu::start();
    FakeGpu::fail_call(n);
    const auto errors = run_gpu_ranks(1, gpu_options(), [](Session&) { FakeGpu::fail_call(0); });
    const bool has_failed = !FakeGpu::failed().empty();
    EXPECT_EQ(has_failed, !errors[0].empty()) << FakeGpu::failed();
    FakeGpu::fail_call(0);
    EXPECT_EQ(FakeGpu::live_text(), "") << FakeGpu::failed();
    if (!has_failed) break;
  }
  EXPECT_GT(n, 25);
}

}  // namespace
}  // namespace tilewire

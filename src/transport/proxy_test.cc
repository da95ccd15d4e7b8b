#include "transport/proxy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "base/log.h"
#include "transport/emulated/emulated_transport.h"
#include "transport/fault/fault_transport.h"
#include "transport/instant_transport.h"
#include "transport/manual_transport.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

// The ranks of a network with a proxy and rings each.
class Cluster {
 public:
  static constexpr int kRings = 2;

  Cluster(int32_t ranks, const TransportMaker& make, Epoch first_epoch = 1, uint32_t ring_entries = 64)
      : net(ranks, make) {
    for (int32_t r = 0; r < ranks; ++r) {
      sinks_.push_back(std::make_unique<WordSink>(net.arena(r), net.layout()));
      ProxyConfig config{.rank = Rank{r}, .layout = net.layout(), .control_page = net.arena(r)};
      config.half_bytes = static_cast<uint64_t>(net.layout().half_stride_bytes);
      config.user_bytes = static_cast<uint64_t>(net.layout().user_stride_bytes);
      config.peers = net.peers(Rank{r});
      config.first_epoch = first_epoch;
      config.arrivals = sinks_.back().get();
      for (int i = 0; i < kRings; ++i) {
        rings_.push_back(std::make_unique<CommandRing>(ring_entries));
        producers.emplace_back(rings_.back()->memory());
        config.rings.push_back(rings_.back()->memory());
      }
      proxies.push_back(
          std::make_unique<Proxy>(config, net.transport(r), ProxyOptions{.on_fault = [this](const ProxyFault& fault) {
                                    const std::lock_guard lock(mutex_);
                                    faults_.push_back(fault);
                                  }}));
    }
  }
  // Every fault of the script has come, on one rank at least: else the test has shown nothing.
  ~Cluster() {
    for (const std::unique_ptr<Proxy>& proxy : proxies) proxy->stop();
    EXPECT_TRUE(have_faults_come()) << "a planted fault never came";
  }
  bool have_faults_come() {
    std::vector<uint64_t> come = net.transport(0).faults_come();
    for (int32_t r = 1; r < net.ranks(); ++r) {
      const std::vector<uint64_t> there = net.transport(r).faults_come();
      for (size_t i = 0; i < come.size(); ++i) come[i] += there[i];
    }
    return std::find(come.begin(), come.end(), 0u) == come.end();
  }

  CommandProducer& producer(int32_t rank, int ring) { return producers[static_cast<size_t>(rank * kRings + ring)]; }
  void post(int32_t rank, int ring, const Command& command) {
    EXPECT_TRUE(step_until([&] { return producer(rank, ring).try_post(command); })) << "the ring stayed full";
  }
  std::vector<ProxyFault> faults() {
    const std::lock_guard lock(mutex_);
    return faults_;
  }
  bool wait_sent(int32_t rank, Epoch e) {
    return step_until([&] { return load_sent(net.arena(rank)) >= e; });
  }
  bool wait_word(int32_t rank, uint32_t word, Epoch e) {
    return step_until([&] { return has_reached(net.arena(rank), net.layout(), word, e); });
  }

  TestNetwork net;
  std::vector<CommandProducer> producers;
  std::vector<std::unique_ptr<Proxy>> proxies;

 private:
  std::vector<std::unique_ptr<ArrivalSink>> sinks_;
  std::vector<std::unique_ptr<CommandRing>> rings_;
  std::mutex mutex_;
  std::vector<ProxyFault> faults_;
};

TransportMaker emulated(EmulatedOptions options, std::string fault = "") {
  return [options, fault](const TransportContext& context) {
    return make_fault_transport(make_emulated_transport(context, options), fault);
  };
}

struct QuietLog {
  QuietLog() : previous(set_log_sink([](LogLevel, std::string_view) {})) {}
  ~QuietLog() { set_log_sink(previous); }
  LogSink previous;
};

// Calls as an op makes them: every rank sends chunks to every other, both rings, waits for its own words and `done`.
constexpr uint32_t kChunks = 12;
constexpr uint64_t kChunkUnits = 512;

uint64_t chunk_value(int32_t from, Epoch e, uint32_t chunk, uint64_t at) {
  return (static_cast<uint64_t>(from) << 56) ^ (e << 20) ^ (uint64_t{chunk} << 12) ^ at;
}

void run_rank(Cluster& cluster, int32_t me, Epoch first, int calls, int ring_of_data) {
  const ArenaLayout& layout = cluster.net.layout();
  std::byte* base = cluster.net.arena(me);
  const std::vector<Rank> peers = cluster.net.peers(Rank{me});
  const auto unit_of = [&](int32_t from, uint32_t chunk) {
    return static_cast<uint64_t>(layout.data_offset()) / kWireUnitBytes +
           (static_cast<uint64_t>(from) * kChunks + chunk) * kChunkUnits;
  };
  const auto data = [&](Epoch e, int32_t from, uint32_t chunk) {
    return reinterpret_cast<uint64_t*>(base + layout.half_offset(e) + unit_of(from, chunk) * kWireUnitBytes);
  };
  constexpr uint64_t kWords = kChunkUnits * 2;
  for (Epoch e = first; e < first + static_cast<Epoch>(calls); ++e) {
    for (uint32_t c = 0; c < kChunks; ++c) {
      for (uint64_t i = 0; i < kWords; ++i) data(e, me, c)[i] = chunk_value(me, e, c, i);
      for (const Rank peer : peers) {
        cluster.post(me, ring_of_data,
                     {.kind = CommandKind::write,
                      .peer = peer,
                      .word = layout.flags.chunk(0, Rank{me}, Chunk(static_cast<int32_t>(c))),
                      .units = kChunkUnits,
                      .src_unit = unit_of(me, c),
                      .dst_unit = unit_of(me, c)});
      }
    }
    cluster.post(me, ring_of_data, {.kind = CommandKind::call_end, .peer = {}, .epoch = e});
    for (const Rank peer : peers) {
      for (uint32_t c = 0; c < kChunks; ++c) {
        ASSERT_TRUE(cluster.wait_word(me, layout.flags.chunk(0, peer, Chunk(static_cast<int32_t>(c))), e))
            << "call " << e;
        const uint64_t* got = data(e, peer.value, c);
        for (uint64_t i = 0; i < kWords; ++i) {
          ASSERT_EQ(got[i], chunk_value(peer.value, e, c, i)) << "rank " << me << ", call " << e << ", chunk " << c;
        }
      }
    }
    ASSERT_TRUE(cluster.wait_sent(me, e - 1));
    for (const Rank peer : peers) {
      cluster.post(me, 1 - ring_of_data,
                   {.kind = CommandKind::signal, .peer = peer, .word = layout.flags.done(Rank{me})});
    }
    cluster.post(me, 1 - ring_of_data, {.kind = CommandKind::call_end, .peer = {}, .epoch = e});
    for (const Rank peer : peers) ASSERT_TRUE(cluster.wait_word(me, layout.flags.done(peer), e));
  }
  ASSERT_TRUE(cluster.wait_sent(me, first + static_cast<Epoch>(calls) - 1));
}

class ProxyCalls : public ::testing::TestWithParam<EmulatedOptions> {};

TEST_P(ProxyCalls, ManyCallsAcrossTheEpochEdgeKeepDataAndSignalsRight) {
  constexpr int32_t kRanks = 3;
  constexpr int kCalls = 12;
  const Epoch first = (Epoch{1} << 32) - 3;
  Cluster cluster(kRanks, emulated(GetParam()), first);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < kRanks; ++r) threads.emplace_back([&, r] { run_rank(cluster, r, first, kCalls, r % 2); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(cluster.faults().empty()) << cluster.faults().front().text;
  const ProxyTotals totals = cluster.proxies[0]->totals();
  EXPECT_EQ(totals.data_bytes(), uint64_t{2} * kCalls * kChunks * kChunkUnits * kWireUnitBytes);
}

// Half of the range of the immediate's epoch field lies between these and the next carry.
TEST_P(ProxyCalls, EpochsNearTheCarryOfTheNarrowField) {
  const Epoch first = (Epoch{1} << kImmediateEpochBits) - 4;
  Cluster cluster(2, emulated(GetParam()), first);
  std::thread other([&] { run_rank(cluster, 1, first, 8, 1); });
  run_rank(cluster, 0, first, 8, 0);
  other.join();
  EXPECT_TRUE(cluster.faults().empty());
}

INSTANTIATE_TEST_SUITE_P(
    Networks, ProxyCalls,
    ::testing::Values(EmulatedOptions{.personality = Personality::rc},
                      EmulatedOptions{.personality = Personality::rc, .latency = 50us, .control_delay = 1ms},
                      EmulatedOptions{.personality = Personality::relaxed, .max_outstanding = 8},
                      EmulatedOptions{.personality = Personality::relaxed, .reorder = 300us, .control_delay = 2ms},
                      EmulatedOptions{.personality = Personality::srd, .max_outstanding = 4, .receive_entries = 4},
                      EmulatedOptions{.personality = Personality::srd, .reorder = 300us, .control_delay = 2ms}),
    [](const auto& info) { return to_string(info.param.personality) + std::to_string(info.index); });

// What is in a payload when its command appears is what arrives, for every command.
TEST(Proxy, EightProducersGetTheirOwnPayloadAcross) {
  constexpr int kProducers = 8;
  constexpr uint64_t kCommands = 1500;
  TestNetwork net(2, emulated({}));
  const ArenaLayout& layout = net.layout();
  ProxyConfig config{.rank = Rank{0}, .layout = layout, .control_page = net.arena(0)};
  config.half_bytes = static_cast<uint64_t>(layout.half_stride_bytes);
  config.peers = {Rank{1}};
  std::vector<std::unique_ptr<CommandRing>> rings;
  for (int p = 0; p < kProducers; ++p) {
    rings.push_back(std::make_unique<CommandRing>(16));
    config.rings.push_back(rings.back()->memory());
  }
  Proxy proxy(config, net.transport(0), {});
  std::vector<std::thread> threads;
  for (int p = 0; p < kProducers; ++p) {
    threads.emplace_back([&, p] {
      CommandProducer producer(rings[p]->memory());
      constexpr uint64_t kUnits = 4;
      for (uint64_t i = 0; i < kCommands; ++i) {
        const uint64_t unit = 256 + (p * kCommands + i) * kUnits;
        auto* payload = reinterpret_cast<uint64_t*>(net.arena(0) + layout.half_offset(1) + unit * kWireUnitBytes);
        for (uint64_t w = 0; w < kUnits * 2; ++w) payload[w] = (uint64_t(p) << 56) + i * 100 + w;
        const Command command{.kind = CommandKind::write,
                              .peer = Rank{1},
                              .word = static_cast<uint32_t>(8 + p),
                              .units = kUnits,
                              .src_unit = unit,
                              .dst_unit = unit};
        while (!producer.try_post(command)) std::this_thread::yield();
      }
      while (!producer.try_post({.kind = CommandKind::call_end, .peer = {}, .epoch = 1})) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(step_until([&] { return load_sent(net.arena(0)) == 1; }));
  uint64_t wrong = 0;
  for (uint64_t p = 0; p < kProducers; ++p) {
    for (uint64_t i = 0; i < kCommands; ++i) {
      const uint64_t unit = 256 + (p * kCommands + i) * 4;
      const auto* got = reinterpret_cast<uint64_t*>(net.arena(1) + layout.half_offset(1) + unit * kWireUnitBytes);
      for (uint64_t w = 0; w < 8; ++w) wrong += got[w] != (p << 56) + i * 100 + w ? 1 : 0;
    }
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(proxy.totals().commands, kProducers * (kCommands + 1));
}

TEST(Proxy, NapsWhenIdleAndWakesForACommand) {
  Cluster cluster(2, emulated({}));
  ASSERT_TRUE(step_until([&] { return cluster.proxies[0]->totals().naps > 3; }));
  const uint32_t word = cluster.net.layout().flags.done(Rank{0});
  cluster.post(0, 0, {.kind = CommandKind::signal, .peer = Rank{1}, .word = word});
  EXPECT_TRUE(cluster.wait_word(1, word, 1));
}

// Posts so much that a proxy which stopped draining would leave the producer hanging.
void flood(Cluster& cluster) {
  for (int i = 0; i < 1000; ++i) {
    cluster.post(0, 0, {.kind = CommandKind::signal, .peer = Rank{1}, .word = 0});
  }
}

TEST(ProxyFaults, FailedRequestIsReportedOnceAndProducersGoOn) {
  const QuietLog quiet;
  Cluster cluster(2, emulated({}, "fail:nth=5,status=3;fail:nth=6"));
  flood(cluster);
  ASSERT_TRUE(step_until([&] { return !cluster.faults().empty(); }));
  std::this_thread::sleep_for(5ms);
  ASSERT_EQ(cluster.faults().size(), 1u);
  EXPECT_EQ(cluster.faults()[0].kind, ProxyFaultKind::failed_request);
  EXPECT_EQ(cluster.faults()[0].peer, Rank{1});
  EXPECT_TRUE(cluster.proxies[0]->has_fault());
  EXPECT_TRUE(cluster.proxies[0]->is_running());
  EXPECT_FALSE(cluster.proxies[1]->has_fault());
}

TEST(ProxyFaults, ProxyThatDiesIsNoticedAndProducersGoOn) {
  const QuietLog quiet;
  Cluster cluster(2, emulated({}, "die:step=100"));
  ASSERT_TRUE(step_until([&] { return cluster.faults().size() == 2; }));
  flood(cluster);
  for (const ProxyFault& fault : cluster.faults()) {
    EXPECT_EQ(fault.kind, ProxyFaultKind::died);
    EXPECT_NE(fault.text.find("step 100"), std::string::npos) << fault.text;
  }
}

TEST(ProxyFaults, BadCommandIsReportedAndNothingIsSentForIt) {
  const QuietLog quiet;
  Cluster cluster(2, emulated({}));
  cluster.post(0, 1, {.kind = CommandKind::signal, .peer = Rank{1}, .word = 1u << 20});
  flood(cluster);
  ASSERT_TRUE(step_until([&] { return !cluster.faults().empty(); }));
  EXPECT_EQ(cluster.faults()[0].kind, ProxyFaultKind::bad_command);
  EXPECT_NE(cluster.faults()[0].text.find("ring 1, command 0: bad field word"), std::string::npos)
      << cluster.faults()[0].text;
}

// Nothing is under way that would fail.
TEST(ProxyFaults, ADeviceThatHasFailedIsReportedByAProxyThatHasNothingToDo) {
  class FailingDevice final : public InstantTransport {
   public:
    using InstantTransport::InstantTransport;
    void look_at_devices(std::chrono::nanoseconds patience) override {
      if (patience == 7s && ++looks_ == 2) throw Error(ErrorKind::unavailable, {.what = "port nic0:1 is down"});
    }

   private:
    int looks_ = 0;
  };
  const QuietLog quiet;
  const ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 4}};
  std::vector<std::byte> arena(static_cast<size_t>(layout.total_bytes()));
  FailingDevice transport(Caps{.name = "failing", .ordered_writes = true, .value_writes = true, .max_outstanding = 8});
  CommandRing ring(16);
  ProxyConfig config{.rank = Rank{0}, .layout = layout, .control_page = arena.data()};
  config.peers = {Rank{1}};
  config.rings = {ring.memory()};
  config.leaving_time = 7s;
  ProxyFault told;
  Proxy proxy(config, transport, {.on_fault = [&](const ProxyFault& fault) { told = fault; }});
  ASSERT_TRUE(step_until([&] { return proxy.has_fault(); }));
  proxy.stop();
  EXPECT_EQ(told.kind, ProxyFaultKind::failed_device);
  EXPECT_NE(told.text.find("port nic0:1 is down"), std::string::npos) << told.text;
}

TEST(ProxyFaults, CallbackThatThrowsDoesNotEndTheProcess) {
  const QuietLog quiet;
  TestNetwork net(2, emulated({}, "die:step=1"));
  CommandRing ring(16);
  ProxyConfig config{.rank = Rank{0}, .layout = net.layout(), .control_page = net.arena(0)};
  config.peers = {Rank{1}};
  config.rings = {ring.memory()};
  Proxy proxy(config, net.transport(0), {.on_fault = [](const ProxyFault&) { throw std::runtime_error("no"); }});
  EXPECT_TRUE(step_until([&] { return proxy.has_fault(); }));
}

TEST(ProxyFaults, WithheldCompletionKeepsSentBack) {
  Cluster cluster(2, emulated({}, "withhold:after=1"));
  const uint32_t word = cluster.net.layout().flags.done(Rank{0});
  for (Epoch e = 1; e <= 2; ++e) {
    cluster.post(0, 0, {.kind = CommandKind::signal, .peer = Rank{1}, .word = word});
    for (int ring = 0; ring < Cluster::kRings; ++ring) {
      cluster.post(0, ring, {.kind = CommandKind::call_end, .peer = {}, .epoch = e});
    }
  }
  EXPECT_TRUE(cluster.wait_word(1, word, 2));
  EXPECT_TRUE(cluster.wait_sent(0, 1));
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(load_sent(cluster.net.arena(0)), 1u);
}

TEST(ProxyFaults, FullQueueOfTheNetworkDelaysButLosesNothing) {
  Cluster cluster(2, emulated({}, "full:after=1,times=200"));
  std::thread other([&] { run_rank(cluster, 1, 1, 3, 0); });
  run_rank(cluster, 0, 1, 3, 0);
  other.join();
  EXPECT_GT(cluster.proxies[0]->totals().post_refusals, 0u);
}

TEST(ProxyFaults, StopIsQuickWhateverHappensAndCanBeRepeated) {
  const QuietLog quiet;
  // What is withheld are completions, so they have to come before the stop; the others would be a minute on their way.
  const std::pair<const char*, std::chrono::nanoseconds> cases[] = {
      {"", 60s},         {"stall", 60s},      {"stall:after=3", 60s},     {"drop:peer=1", 60s},
      {"withhold", 1us}, {"die:step=5", 60s}, {"full:times=1000000", 60s}};
  for (const auto& [script, latency] : cases) {
    Cluster cluster(2, emulated({.latency = latency}, script));
    for (uint32_t i = 0; i < 40; ++i) cluster.post(0, 0, {.kind = CommandKind::signal, .peer = Rank{1}, .word = i});
    EXPECT_TRUE(step_until([&] { return cluster.have_faults_come(); })) << script;
    const auto begin = std::chrono::steady_clock::now();
    std::thread also([&] { cluster.proxies[0]->stop(); });
    cluster.proxies[0]->stop();
    cluster.proxies[0]->stop();
    also.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s) << script;
    EXPECT_FALSE(cluster.proxies[0]->is_running());
  }
}

TEST(Proxy, RoundsGrowWhileItRuns) {
  Cluster cluster(2, emulated({}));
  const uint64_t before = cluster.proxies[0]->rounds();
  EXPECT_TRUE(step_until([&] { return cluster.proxies[0]->rounds() > before + 10; }));
}

}  // namespace
}  // namespace tilewire

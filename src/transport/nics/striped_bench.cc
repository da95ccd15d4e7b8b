// What dealing chunks over several NICs costs the proxy's one thread, and whether that thread can feed them all.
#include <benchmark/benchmark.h>

#include <chrono>
#include <vector>

#include "base/bench_row.h"
#include "transport/instant_transport.h"
#include "transport/nics/striped_transport.h"
#include "transport/proxy_engine.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

// An engine with one ring, over `nics`, without its thread.
struct EngineRig {
  explicit EngineRig(int64_t nics) {
    std::vector<StripedNic> list;
    const Caps caps{.name = "instant", .write_with_immediate = true, .max_outstanding = 256};
    for (int64_t i = 0; i < nics; ++i) list.push_back({std::make_unique<InstantTransport>(caps), "nic", {}});
    transport = make_striped_transport({.rank = Rank{0}, .ranks = 2, .peers = {Rank{1}}}, std::move(list));
    engine = std::make_unique<ProxyEngine>(ProxyConfig{.rank = Rank{0},
                                                       .layout = layout,
                                                       .control_page = arena.data(),
                                                       .half_bytes = 1 << 16,
                                                       .peers = {Rank{1}},
                                                       .rings = {ring.memory()},
                                                       .arrivals = &sink},
                                           *transport, committed, counters);
    committed.half.store(1 << 16);
  }
  // Chunks from the ring to their completions.
  double ns_a_chunk() {
    const Command chunk{.kind = CommandKind::write, .peer = Rank{1}, .word = 9, .units = 64};
    const auto begin = Clock::now();
    for (int i = 0; i < kChunks; ++i) {
      while (!producer.try_post(chunk)) engine->step();
      if (i % 8 == 0) engine->step();
    }
    while (engine->step() || !engine->is_idle()) {
    }
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kChunks;
  }

  static constexpr int kChunks = 20'000;
  ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 64}, .half_stride_bytes = 1 << 16};
  std::vector<std::byte> arena = std::vector<std::byte>(static_cast<size_t>(layout.total_bytes()));
  CommandRing ring{1024};
  CommandProducer producer{ring.memory()};
  WordSink sink{arena.data(), layout};
  CommittedBytes committed;
  ProxyCounters counters{1};
  std::unique_ptr<Transport> transport;
  std::unique_ptr<ProxyEngine> engine;
};

// Four ports of 100 Gbit/s take a chunk of 64 KiB every 1311 ns. Goal: the thread is at most a fifth of its time at that.
void BM_ChunksOverNics(benchmark::State& state) {
  BenchRow row(state, 1);
  EngineRig ours(state.range(0)), bare(1);
  std::vector<double> ours_ns, bare_ns;
  for (auto _ : state) {
    bare_ns.push_back(bare.ns_a_chunk());
    ours_ns.push_back(ours.ns_a_chunk());
    state.SetIterationTime(ours_ns.back() * EngineRig::kChunks * 1e-9);
  }
  const auto median = [](std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
  };
  const double took = median(ours_ns);
  row.report({.ours = took,
              .baseline = median(bare_ns),
              .baseline_name = "the same over one NIC",
              .unit = "ns",
              .is_smaller_better = true,
              .goal = "<= 262 ns",
              .meets_goal = took <= 262});
}
BENCHMARK(BM_ChunksOverNics)->ArgName("nics")->Arg(1)->Arg(4)->UseManualTime();

}  // namespace
}  // namespace tilewire

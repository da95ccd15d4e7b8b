// What the command queue, the proxy and the emulated transport cost, each in turns with the bare mechanism it is built
// on. On a machine with fewer free cores than threads the times hold context switches, and no goal is judged.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/bench_row.h"
#include "transport/emulated/emulated_transport.h"
#include "transport/instant_transport.h"
#include "transport/proxy.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Tells who watches how many requests came.
class SinkTransport final : public InstantTransport {
 public:
  SinkTransport()
      : InstantTransport({.name = "sink", .ordered_writes = true, .value_writes = true, .max_outstanding = 1024}) {}

  size_t post(std::span<const WriteRequest> requests) override {
    const size_t taken = InstantTransport::post(requests);
    count_.store(count_.load(std::memory_order_relaxed) + taken, std::memory_order_release);
    return taken;
  }

  uint64_t count() const { return count_.load(std::memory_order_acquire); }

 private:
  alignas(128) std::atomic<uint64_t> count_{0};
};

// A proxy over a SinkTransport with some rings.
struct ProxyRig {
  ProxyRig(int ring_count, uint32_t entries) : arena(static_cast<size_t>(layout.total_bytes())) {
    ProxyConfig config{.rank = Rank{0}, .layout = layout, .control_page = arena.data(), .half_bytes = 1 << 16};
    config.peers = {Rank{1}};
    for (int i = 0; i < ring_count; ++i) {
      rings.push_back(std::make_unique<CommandRing>(entries));
      config.rings.push_back(rings.back()->memory());
    }
    proxy = std::make_unique<Proxy>(config, sink, ProxyOptions{});
  }

  ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 64}, .half_stride_bytes = 1 << 16};
  std::vector<std::byte> arena;
  SinkTransport sink;
  std::vector<std::unique_ptr<CommandRing>> rings;
  std::unique_ptr<Proxy> proxy;
};

Command signal_command() { return {.kind = CommandKind::signal, .peer = Rank{1}, .word = 9}; }
Command write_command() { return {.kind = CommandKind::write, .peer = Rank{1}, .word = 9, .units = 64}; }

constexpr int kProducers = 8;
constexpr uint64_t kEach = 50'000;

// Eight threads post `kEach` commands each; returns once `taken()` says that all were taken.
template <class Taken>
Clock::duration time_eight_producers(std::vector<CommandProducer>& producers, const Command& command, Taken&& taken) {
  const uint64_t before = taken();
  const auto begin = Clock::now();
  std::vector<std::thread> threads;
  for (CommandProducer& producer : producers) {
    threads.emplace_back([&producer, command] {
      for (uint64_t i = 0; i < kEach; ++i) {
        while (!producer.try_post(command)) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (taken() - before < kProducers * kEach) std::this_thread::yield();
  return Clock::now() - begin;
}

// The median of some times: a thread that was taken off its core in between does not count.
class Times {
 public:
  void add(Clock::duration took) { ns_.push_back(seconds(took) * 1e9); }
  double median_ns() {
    std::nth_element(ns_.begin(), ns_.begin() + static_cast<ptrdiff_t>(ns_.size() / 2), ns_.end());
    return ns_[ns_.size() / 2];
  }

 private:
  std::vector<double> ns_;
};

// The bare mechanism of the two rows that follow: a thread that takes commands and drops them.
class BareDrain {
 public:
  explicit BareDrain(int rings) {
    for (int i = 0; i < rings; ++i) {
      rings_.push_back(std::make_unique<CommandRing>(1024));
      consumers_.emplace_back(rings_.back()->memory());
      producers.emplace_back(rings_.back()->memory());
    }
    thread_ = std::thread([this] { drain(); });
  }
  ~BareDrain() {
    is_stopped_.store(true);
    thread_.join();
  }
  uint64_t taken() const { return taken_.load(std::memory_order_acquire); }

  std::vector<CommandProducer> producers;

 private:
  void drain() {
    std::array<PackedCommand, 32> batch;
    while (!is_stopped_.load(std::memory_order_relaxed)) {
      size_t n = 0;
      for (CommandConsumer& consumer : consumers_) {
        n += consumer.take(batch);
        consumer.release();
      }
      if (n == 0) std::this_thread::yield();
      taken_.store(taken_.load(std::memory_order_relaxed) + n, std::memory_order_release);
    }
  }

  std::vector<std::unique_ptr<CommandRing>> rings_;
  std::vector<CommandConsumer> consumers_;
  std::atomic<bool> is_stopped_{false};
  alignas(128) std::atomic<uint64_t> taken_{0};
  std::thread thread_;
};

// One proxy thread, eight producers. Goal: 2 M commands/s.
template <Command (*kCommand)()>
void BM_ProxyDrainsEightProducers(benchmark::State& state) {
  BenchRow row(state, kProducers + 1);
  Times ours;
  Times bare;
  for (auto _ : state) {
    {
      BareDrain drain(kProducers);
      bare.add(time_eight_producers(drain.producers, kCommand(), [&] { return drain.taken(); }));
    }
    ProxyRig rig(kProducers, 1024);
    std::vector<CommandProducer> producers;
    for (const auto& ring : rig.rings) producers.emplace_back(ring->memory());
    const auto took = time_eight_producers(producers, kCommand(), [&] { return rig.proxy->totals().commands; });
    ours.add(took);
    state.SetIterationTime(seconds(took));
  }
  state.SetItemsProcessed(state.iterations() * kProducers * static_cast<int64_t>(kEach));
  const auto rate = [](Times& times) { return kProducers * kEach * 1e3 / times.median_ns(); };
  row.report({.ours = rate(ours),
              .baseline = rate(bare),
              .baseline_name = "rings drained by a bare loop",
              .unit = "M commands/s",
              .goal = ">= 2 M commands/s",
              .meets_goal = rate(ours) >= 2});
}
BENCHMARK(BM_ProxyDrainsEightProducers<signal_command>)->Name("BM_ProxyDrainsEightProducers/signal")->UseManualTime();
BENCHMARK(BM_ProxyDrainsEightProducers<write_command>)->Name("BM_ProxyDrainsEightProducers/write")->UseManualTime();

constexpr int kPosts = 512;

// A burst of posts that the ring holds; returns once all of them were taken.
template <class Taken>
Clock::duration time_posts(CommandProducer& producer, Taken&& taken) {
  const auto begin = Clock::now();
  for (int i = 0; i < kPosts; ++i) benchmark::DoNotOptimize(producer.try_post(signal_command()));
  const auto took = Clock::now() - begin;
  while (taken() < producer.posted()) std::this_thread::yield();
  return took;
}

// What a post costs its producer while the proxy drains. Goal: 20 ns.
void BM_PostWhileDrained(benchmark::State& state) {
  BenchRow row(state, 2);
  Times ours;
  Times bare;
  {
    BareDrain drain(1);
    for (int i = 0; i < 1000; ++i) bare.add(time_posts(drain.producers[0], [&] { return drain.taken(); }));
  }
  {
    ProxyRig rig(1, 1024);
    CommandProducer producer(rig.rings[0]->memory());
    for (auto _ : state) {
      const auto took = time_posts(producer, [&] { return rig.proxy->totals().commands; });
      ours.add(took);
      state.SetIterationTime(seconds(took));
    }
  }
  row.report({.ours = ours.median_ns() / kPosts,
              .baseline = bare.median_ns() / kPosts,
              .baseline_name = "post to a ring drained by a bare loop",
              .unit = "ns",
              .is_smaller_better = true,
              .goal = "<= 20 ns",
              .meets_goal = ours.median_ns() / kPosts <= 20});
}
BENCHMARK(BM_PostWhileDrained)->UseManualTime()->Iterations(1000);

// Spins until `ready()`, and yields now and then for machines with few cores.
template <class Ready>
void spin_until(Ready&& ready) {
  for (int spins = 0; !ready();) {
    if (++spins % 4096 == 0) std::this_thread::yield();
  }
}

// The bare mechanism of the next: a flag goes to another thread and one comes back.
class FlagEcho {
 public:
  FlagEcho() : thread_([this] { echo(); }) {}
  ~FlagEcho() {
    there_.value.store(UINT64_MAX, std::memory_order_release);
    thread_.join();
  }
  Clock::duration time_round() {
    const auto begin = Clock::now();
    there_.value.store(++sent_, std::memory_order_release);
    spin_until([&] { return back_.value.load(std::memory_order_acquire) >= sent_; });
    return Clock::now() - begin;
  }

 private:
  struct alignas(128) Flag {
    std::atomic<uint64_t> value{0};
  };

  void echo() {
    for (uint64_t next = 1;; ++next) {
      uint64_t seen = 0;
      spin_until([&] { return (seen = there_.value.load(std::memory_order_acquire)) >= next; });
      if (seen == UINT64_MAX) return;
      back_.value.store(next, std::memory_order_release);
    }
  }

  Flag there_;
  Flag back_;
  uint64_t sent_ = 0;
  std::thread thread_;
};

// A command goes to the proxy, and the transport's post comes back as a flag. Goal: 1.0 us more than a flag and its
// answer, whose other half is the same way back.
void BM_CommandToPost(benchmark::State& state) {
  BenchRow row(state, 2);
  Times ours;
  Times bare;
  {
    FlagEcho echo;
    for (int i = 0; i < 5000; ++i) bare.add(echo.time_round());
  }
  {
    ProxyRig rig(static_cast<int>(state.range(0)), 1024);
    CommandProducer producer(rig.rings[0]->memory());
    uint64_t n = 0;
    for (auto _ : state) {
      const auto begin = Clock::now();
      producer.try_post(signal_command());
      ++n;
      spin_until([&] { return rig.sink.count() >= n; });
      ours.add(Clock::now() - begin);
    }
  }
  row.report({.ours = ours.median_ns(),
              .baseline = bare.median_ns(),
              .baseline_name = "flag to a thread and back",
              .unit = "ns",
              .is_smaller_better = true,
              .goal = "<= baseline + 1000 ns",
              .meets_goal = ours.median_ns() <= bare.median_ns() + 1000});
}
BENCHMARK(BM_CommandToPost)->ArgName("rings")->Arg(1)->Arg(8)->UseRealTime()->Iterations(5000);

constexpr int64_t kAreaBytes = 64 << 20;

// The bare mechanism of the next: one thread copies between the same two areas, whole ones, as the proxy did just before.
// So neither finds in a cache what the other has left there: a part of the areas that one of them has just copied would
// be the other's to copy from its cache.
Clock::duration time_copies(std::byte* to, const std::byte* from, int64_t chunk_bytes) {
  const auto begin = Clock::now();
  for (int64_t at = 0; at < kAreaBytes; at += chunk_bytes) {
    std::memcpy(to + at, from + at, static_cast<size_t>(chunk_bytes));
    benchmark::ClobberMemory();
  }
  return Clock::now() - begin;
}

// Commands through a ring, a proxy and the emulated transport without a rate. Goal: 80 % of memcpy from 256 KiB on.
void BM_ProxyEmulated(benchmark::State& state) {
  BenchRow row(state, 2);
  const int64_t chunk_bytes = state.range(0);
  const ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 64}, .half_stride_bytes = kAreaBytes};
  TestNetwork net(layout, [](const TransportContext& context) { return make_emulated_transport(context, {}); });
  for (int32_t r : {0, 1}) std::memset(net.arena(r) + layout.half_offset(1), 1, kAreaBytes);
  CommandRing ring(1024);
  ProxyConfig config{.rank = Rank{0}, .layout = layout, .control_page = net.arena(0), .half_bytes = kAreaBytes};
  config.peers = {Rank{1}};
  config.rings = {ring.memory()};
  Proxy proxy(config, net.transport(0), {});
  CommandProducer producer(ring.memory());
  const auto units = static_cast<uint32_t>(chunk_bytes / kWireUnitBytes);
  uint64_t posted = 0;
  Times ours;
  Times bare;
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (uint64_t unit = 0; unit < kAreaBytes / kWireUnitBytes; unit += units) {
      const Command command{
          .kind = CommandKind::write, .peer = Rank{1}, .word = 9, .units = units, .src_unit = unit, .dst_unit = unit};
      while (!producer.try_post(command)) std::this_thread::yield();
      ++posted;
    }
    while (proxy.totals().completions < 2 * posted) std::this_thread::sleep_for(std::chrono::microseconds(20));
    const auto took = Clock::now() - begin;
    ours.add(took);
    state.SetIterationTime(seconds(took));
    bare.add(time_copies(net.arena(1) + layout.half_offset(1), net.arena(0) + layout.half_offset(1), chunk_bytes));
  }
  proxy.stop();
  state.SetBytesProcessed(state.iterations() * kAreaBytes);
  const auto rate = [&](Times& times) { return static_cast<double>(kAreaBytes) / times.median_ns(); };
  const bool has_goal = chunk_bytes >= 256 << 10;
  row.report({.ours = rate(ours),
              .baseline = rate(bare),
              .baseline_name = "memcpy",
              .unit = "GB/s",
              .goal = has_goal ? ">= 0.8 x baseline" : "",
              .meets_goal = rate(ours) >= 0.8 * rate(bare)});
}
BENCHMARK(BM_ProxyEmulated)
    ->ArgName("bytes")
    ->Arg(64 << 10)
    ->Arg(256 << 10)
    ->Arg(1 << 20)
    ->Arg(4 << 20)
    ->UseManualTime();

}  // namespace
}  // namespace tilewire

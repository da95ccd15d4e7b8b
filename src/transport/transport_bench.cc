// What the command queue, the proxy and the emulated transport cost, each beside the bare mechanism it is built on.
//
// On a machine with fewer cores than threads the times of BM_*FlagLatency and BM_CommandToPost hold context switches;
// they mean something where three cores are free.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "transport/emulated/emulated_transport.h"
#include "transport/proxy.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

// Completes everything at once; tells who watches how many requests came.
class SinkTransport final : public Transport {
 public:
  const Caps& caps() const override { return caps_; }
  void register_arena(uint64_t, uint64_t) override {}
  std::vector<std::byte> address() override { return {}; }
  void connect(std::span<const std::vector<std::byte>>, std::chrono::nanoseconds) override {}
  size_t post(std::span<const WriteRequest> requests) override {
    for (const WriteRequest& r : requests) done_.push_back({.kind = EventKind::completed, .peer = r.peer, .id = r.id});
    count_.store(count_.load(std::memory_order_relaxed) + requests.size(), std::memory_order_release);
    return requests.size();
  }
  size_t poll(std::span<Event> events) override {
    const size_t n = std::min(events.size(), done_.size() - reported_);
    std::copy_n(done_.begin() + static_cast<ptrdiff_t>(reported_), n, events.begin());
    reported_ += n;
    if (reported_ == done_.size()) {
      done_.clear();
      reported_ = 0;
    }
    return n;
  }
  std::string describe_status(int32_t) const override { return ""; }
  void close() noexcept override {}

  uint64_t count() const { return count_.load(std::memory_order_acquire); }

 private:
  Caps caps_{.name = "sink", .ordered_writes = true, .value_writes = true, .max_outstanding = 1024};
  std::vector<Event> done_;
  size_t reported_ = 0;
  alignas(128) std::atomic<uint64_t> count_{0};
};

// A proxy over a SinkTransport with some rings.
struct ProxyRig {
  ProxyRig(int ring_count, uint32_t entries) : arena(static_cast<size_t>(layout.total_bytes())) {
    ProxyConfig config{.rank = Rank{0}, .layout = layout, .arena = arena.data(), .half_bytes = 1 << 16};
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

// The bare mechanism of the next: a consumer that takes and drops.
void BM_BareRingsOfEightProducers(benchmark::State& state) {
  std::vector<std::unique_ptr<CommandRing>> rings;
  std::vector<CommandConsumer> consumers;
  std::vector<CommandProducer> producers;
  for (int i = 0; i < kProducers; ++i) {
    rings.push_back(std::make_unique<CommandRing>(1024));
    consumers.emplace_back(rings.back()->memory());
    producers.emplace_back(rings.back()->memory());
  }
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> taken{0};
  std::thread thread([&] {
    std::array<PackedCommand, 32> batch;
    while (!stop.load(std::memory_order_relaxed)) {
      size_t n = 0;
      for (CommandConsumer& consumer : consumers) {
        n += consumer.take(batch);
        consumer.release();
      }
      if (n == 0) std::this_thread::yield();
      taken.store(taken.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
  });
  for (auto _ : state) {
    state.SetIterationTime(seconds(time_eight_producers(producers, signal_command(), [&] { return taken.load(); })));
  }
  stop.store(true);
  thread.join();
  state.SetItemsProcessed(state.iterations() * kProducers * static_cast<int64_t>(kEach));
}
BENCHMARK(BM_BareRingsOfEightProducers)->UseManualTime();

// One proxy thread, eight producers. Goal: 2 M commands/s.
template <Command (*kCommand)()>
void BM_ProxyDrainsEightProducers(benchmark::State& state) {
  ProxyRig rig(kProducers, 1024);
  std::vector<CommandProducer> producers;
  for (const auto& ring : rig.rings) producers.emplace_back(ring->memory());
  const auto taken = [&] { return rig.proxy->totals().commands; };
  for (auto _ : state) state.SetIterationTime(seconds(time_eight_producers(producers, kCommand(), taken)));
  state.SetItemsProcessed(state.iterations() * kProducers * static_cast<int64_t>(kEach));
}
BENCHMARK(BM_ProxyDrainsEightProducers<signal_command>)->Name("BM_ProxyDrainsEightProducers/signal")->UseManualTime();
BENCHMARK(BM_ProxyDrainsEightProducers<write_command>)->Name("BM_ProxyDrainsEightProducers/write")->UseManualTime();

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

// What a post costs its producer while the proxy drains, in bursts that the ring holds. Goal: 20 ns.
void BM_PostWhileDrained(benchmark::State& state) {
  ProxyRig rig(1, 1024);
  CommandProducer producer(rig.rings[0]->memory());
  constexpr int kBurst = 512;
  Times times;
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBurst; ++i) benchmark::DoNotOptimize(producer.try_post(signal_command()));
    const auto took = Clock::now() - begin;
    times.add(took);
    state.SetIterationTime(seconds(took));
    while (rig.proxy->totals().commands < producer.posted()) std::this_thread::yield();
  }
  state.counters["median_ns_per_post"] = times.median_ns() / kBurst;
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
void BM_FlagRoundTrip(benchmark::State& state) {
  struct alignas(128) Flag {
    std::atomic<uint64_t> value{0};
  };
  Flag there;
  Flag back;
  std::thread echo([&] {
    for (uint64_t next = 1;; ++next) {
      uint64_t seen = 0;
      spin_until([&] { return (seen = there.value.load(std::memory_order_acquire)) >= next; });
      if (seen == UINT64_MAX) return;
      back.value.store(next, std::memory_order_release);
    }
  });
  uint64_t n = 0;
  Times times;
  for (auto _ : state) {
    const auto begin = Clock::now();
    there.value.store(++n, std::memory_order_release);
    spin_until([&] { return back.value.load(std::memory_order_acquire) >= n; });
    times.add(Clock::now() - begin);
  }
  there.value.store(UINT64_MAX, std::memory_order_release);
  echo.join();
  state.counters["median_ns"] = times.median_ns();
}
BENCHMARK(BM_FlagRoundTrip)->UseRealTime()->Iterations(5000);

// A command goes to the proxy, and the transport's post comes back as a flag. Goal: 1.0 us more than BM_FlagRoundTrip,
// whose other half is the same way back.
void BM_CommandToPost(benchmark::State& state) {
  ProxyRig rig(static_cast<int>(state.range(0)), 1024);
  CommandProducer producer(rig.rings[0]->memory());
  uint64_t n = 0;
  Times times;
  for (auto _ : state) {
    const auto begin = Clock::now();
    producer.try_post(signal_command());
    ++n;
    spin_until([&] { return rig.sink.count() >= n; });
    times.add(Clock::now() - begin);
  }
  state.counters["median_ns"] = times.median_ns();
}
BENCHMARK(BM_CommandToPost)->Arg(1)->Arg(8)->UseRealTime()->Iterations(5000);

constexpr int64_t kAreaBytes = 64 << 20;

// The bare mechanism of the next.
void BM_Memcpy(benchmark::State& state) {
  const auto chunk = static_cast<uint64_t>(state.range(0));
  std::vector<std::byte> from(kAreaBytes, std::byte{1});
  std::vector<std::byte> to(kAreaBytes, std::byte{2});
  uint64_t at = 0;
  Times times;
  for (auto _ : state) {
    const auto begin = Clock::now();
    std::memcpy(to.data() + at, from.data() + at, chunk);
    benchmark::ClobberMemory();
    times.add(Clock::now() - begin);
    at = (at + chunk) % kAreaBytes;
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
  state.counters["median_GB_per_s"] = static_cast<double>(chunk) / times.median_ns();
}
BENCHMARK(BM_Memcpy)->Arg(64 << 10)->Arg(256 << 10)->Arg(1 << 20)->Arg(4 << 20)->UseRealTime();

// Commands through a ring, a proxy and the emulated transport without a rate. Goal: 80 % of BM_Memcpy from 256 KiB on.
void BM_ProxyEmulated(benchmark::State& state) {
  const ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 64}, .half_stride_bytes = kAreaBytes};
  TestNetwork net(layout, [](const TransportContext& context) { return make_emulated_transport(context, {}); });
  for (int32_t r : {0, 1}) std::memset(net.arena(r) + layout.half_offset(1), 1, kAreaBytes);
  CommandRing ring(1024);
  ProxyConfig config{.rank = Rank{0}, .layout = layout, .arena = net.arena(0), .half_bytes = kAreaBytes};
  config.peers = {Rank{1}};
  config.rings = {ring.memory()};
  Proxy proxy(config, net.transport(0), {});
  CommandProducer producer(ring.memory());
  const auto units = static_cast<uint32_t>(state.range(0) / kWireUnitBytes);
  uint64_t unit = 0;
  constexpr int kBurst = 32;
  uint64_t posted = 0;
  Times times;
  for (auto _ : state) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBurst; ++i) {
      const Command command{
          .kind = CommandKind::write, .peer = Rank{1}, .word = 9, .units = units, .src_unit = unit, .dst_unit = unit};
      while (!producer.try_post(command)) std::this_thread::yield();
      unit = (unit + units) % (kAreaBytes / kWireUnitBytes);
    }
    posted += kBurst;
    while (proxy.totals().completions < 2 * posted) std::this_thread::sleep_for(std::chrono::microseconds(20));
    times.add(Clock::now() - begin);
  }
  proxy.stop();
  state.counters["median_GB_per_s"] = static_cast<double>(kBurst * state.range(0)) / times.median_ns();
  state.SetBytesProcessed(state.iterations() * kBurst * state.range(0));
}
BENCHMARK(BM_ProxyEmulated)->Arg(64 << 10)->Arg(256 << 10)->Arg(1 << 20)->Arg(4 << 20)->UseRealTime();

}  // namespace
}  // namespace tilewire

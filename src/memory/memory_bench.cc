// The bare mechanism that everything above is compared with: how long a flag takes to another thread or process, and
// how fast this machine copies.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <tilewire/error.h>

#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include "memory/forked_child.h"
#include "memory/memfd_arena.h"
#include "memory/ping_pong.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

ArenaConfig config_of(int32_t rank) {
  return {.rank = Rank{rank},
          .layout = {.flags = {.ranks = 2, .max_chunks = 4}, .half_stride_bytes = 4096, .user_stride_bytes = 0},
          .half_bytes = 0,
          .user_bytes = 0};
}

struct Pair {
  MemfdArena a{config_of(0)};
  MemfdArena b{config_of(1)};

  Pair() {
    a.map_peer(Rank{1}, UniqueFd(fcntl(b.export_fd(), F_DUPFD_CLOEXEC, 0)));
    b.map_peer(Rank{0}, UniqueFd(fcntl(a.export_fd(), F_DUPFD_CLOEXEC, 0)));
  }
};

// spin_us of the benchmark's argument; 0 goes to sleep at once, so that the bell is measured too.
WaitOptions options_of(const benchmark::State& state) {
  WaitOptions options;
  options.spin = std::chrono::microseconds(state.range(0));
  options.yields = state.range(0) == 0 ? 0 : options.yields;
  options.deadline = 10s;
  return options;
}

// The answering side: plays until it is aborted.
void answer(Pair& pair, const WaitOptions& options) {
  const PingPong side = {pair.b.layout(), pair.b.base(), pair.b.peer(Rank{0}), Rank{1}, options, 0};
  play(side, 1, std::numeric_limits<Epoch>::max(), std::chrono::nanoseconds::max());
}

void measure(benchmark::State& state, Pair& pair, const WaitOptions& options) {
  const ArenaLayout& layout = pair.a.layout();
  HostWaiter waiter(pair.a.base(), options);
  Epoch e = 0;
  for (auto _ : state) {
    publish_word(pair.a.peer(Rank{1}), layout, layout.flags.begun(Rank{0}), ++e);
    const auto result = waiter.wait([&] { return has_reached(pair.a.base(), layout, layout.flags.begun(Rank{1}), e); },
                                    [] { return std::string("the answer"); });
    if (result != WaitResult::ready) {
      state.SkipWithError("the other side does not answer");
      break;
    }
  }
  raise_abort(pair.a.peer(Rank{1}));
  // A round is two flags, one each way.
  state.counters["one_way"] = benchmark::Counter(2.0 * static_cast<double>(state.iterations()),
                                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void flag_between_threads(benchmark::State& state) {
  Pair pair;
  const WaitOptions options = options_of(state);
  std::thread other([&] { answer(pair, options); });
  measure(state, pair, options);
  other.join();
}

void flag_between_processes(benchmark::State& state) {
  Pair pair;
  const WaitOptions options = options_of(state);
  ForkedChild other([&] {
    answer(pair, options);
    return 0;
  });
  measure(state, pair, options);
  other.wait();
}

// What a publish costs when nobody sleeps and the line is at hand.
void publish_alone(benchmark::State& state) {
  MemfdArena arena(config_of(0));
  Epoch e = 0;
  for (auto _ : state) publish_word(arena.base(), arena.layout(), 0, ++e);
}

// Into fresh places each time, as chunks go: a buffer far larger than the caches.
void copy_chunks(benchmark::State& state) {
  const int64_t chunk_bytes = state.range(0);
  const int64_t total_bytes = int64_t{256} << 20;
  std::vector<char> from(static_cast<size_t>(total_bytes), 1);
  std::vector<char> to(static_cast<size_t>(total_bytes), 2);
  int64_t at = 0;
  for (auto _ : state) {
    std::memcpy(to.data() + at, from.data() + at, static_cast<size_t>(chunk_bytes));
    benchmark::ClobberMemory();
    at = at + 2 * chunk_bytes <= total_bytes ? at + chunk_bytes : 0;
  }
  state.SetBytesProcessed(state.iterations() * chunk_bytes);
}

BENCHMARK(publish_alone);
BENCHMARK(flag_between_threads)->ArgName("spin_us")->Arg(1000)->Arg(20)->Arg(0)->UseRealTime();
BENCHMARK(flag_between_processes)->ArgName("spin_us")->Arg(1000)->Arg(20)->Arg(0)->UseRealTime();
BENCHMARK(copy_chunks)->ArgName("bytes")->RangeMultiplier(4)->Range(4 << 10, 16 << 20)->UseRealTime();

}  // namespace
}  // namespace tilewire

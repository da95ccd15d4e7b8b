// Pieces of work a second of the random walk, the clocked walk and the search. The op walked has 16 ranks and
// 20 calls; the checks of memory are on in the random walk. There is no bare mechanism beside them: what they are
// compared with is their goal.
#include <benchmark/benchmark.h>

#include <chrono>

#include "base/bench_row.h"
#include "schedule/simulator/exhaustive_run.h"
#include "schedule/simulator/random_run.h"
#include "schedule/simulator/timed_run.h"
#include "schedule/simulator/toy_ops.h"

namespace tilewire {
namespace {

Toy big_ring(int calls) {
  Toy toy(std::vector<int32_t>(16, 1), 2, 1 << 20);
  for (int i = 0; i < calls; ++i) toy.add_ring_broadcast({.chunks = 32, .chunk_bytes = 1024});
  return toy;
}

constexpr double kGoal = 1;  // M pieces of work a second

// Counts pieces of work and the time they take.
class Rate {
 public:
  explicit Rate(benchmark::State& state) : row_(state, 1) {}
  template <class Walk>
  void add(Walk&& walk) {
    const auto begin = std::chrono::steady_clock::now();
    pieces_ += walk();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  void report() {
    const double rate = static_cast<double>(pieces_) / seconds_ * 1e-6;
    row_.report({.ours = rate,
                 .baseline = kGoal,
                 .baseline_name = "goal",
                 .unit = "M steps/s",
                 .goal = ">= 1 M steps/s",
                 .meets_goal = rate >= kGoal});
  }

 private:
  BenchRow row_;
  int64_t pieces_ = 0;
  double seconds_ = 0;
};

void random_walk(benchmark::State& state) {
  const Toy toy = big_ring(20);
  SimOptions options;
  options.network = static_cast<SimNetwork>(state.range(0));
  Rate rate(state);
  uint64_t seed = 1;
  for (auto _ : state) {
    rate.add([&] {
      const SimReport r = run_random(toy.program, options, seed++);
      if (!r.ok()) state.SkipWithError(r.text().c_str());
      return r.pieces_of_work;
    });
  }
  rate.report();
}
BENCHMARK(random_walk)->Arg(0)->Arg(1)->ArgName("counted")->Unit(benchmark::kMillisecond);

void clocked_walk(benchmark::State& state) {
  const Toy toy = big_ring(20);
  CostModel costs;
  costs.checks_rules = state.range(0) != 0;
  Rate rate(state);
  for (auto _ : state) {
    rate.add([&] {
      const TimedReport r = run_timed(toy.program, costs);
      if (!r.rules.ok()) state.SkipWithError(r.rules.text().c_str());
      return r.rules.pieces_of_work;
    });
  }
  rate.report();
}
BENCHMARK(clocked_walk)->Arg(0)->Arg(1)->ArgName("checks")->Unit(benchmark::kMillisecond);

void search(benchmark::State& state) {
  Toy toy({1, 1});
  toy.add_ring_broadcast({.chunks = 1});
  int64_t states = 0;
  for (auto _ : state) states += run_exhaustive(toy.program, {}, 1 << 20).states;
  state.counters["states"] = benchmark::Counter(static_cast<double>(states), benchmark::Counter::kIsRate);
}
BENCHMARK(search)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewire

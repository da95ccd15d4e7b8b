// How long the simulator takes for large calls of one operation, and how much memory, whose big_call.h is TILEWIRE_OP_BIG_CALL. See
// testing/walk_bench.h.
#include TILEWIRE_OP_BIG_CALL

namespace tilewire {
namespace {

void random_walk(benchmark::State& state) { bench_random_walk(state, TILEWIRE_OP::big_call(BigCluster(state))); }
BENCHMARK(random_walk)->Apply(on_big_clusters);

void clocked_walk(benchmark::State& state) { bench_clocked_walk(state, TILEWIRE_OP::big_call(BigCluster(state))); }
BENCHMARK(clocked_walk)->Apply(on_big_clusters);

void walk_memory(benchmark::State& state) {
  bench_walk_memory(state, [](const BigCluster& cluster) { return TILEWIRE_OP::big_call(cluster); });
}
BENCHMARK(walk_memory)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tilewire

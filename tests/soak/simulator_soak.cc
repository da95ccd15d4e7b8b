// Many random sequences of four calls on one arena, each walked by the simulator in several random orders.
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <random>

#include "ops/ag_gemm/simulation.h"
#include "schedule/simulator/random_run.h"
#include "soak/soak_run.h"

namespace tilewire::ag_gemm {
namespace {

constexpr int kCalls = 4;

class Sequence {
 public:
  explicit Sequence(uint64_t seed)
      : random_(seed), layout_(pick_layout()), ranks_(std::accumulate(layout_.begin(), layout_.end(), 0)) {
    const ArenaLayout arena = {
        .flags = {.ranks = ranks_, .max_chunks = 32}, .half_stride_bytes = 1 << 20, .user_stride_bytes = 1 << 20};
    simulation_ = std::make_unique<Simulation>(TopologyTables::from_layout(layout_), arena,
                                               below(2) == 0 ? Epoch{2} : (Epoch{1} << 32) - 3);
    for (int call = 0; call < kCalls; ++call) add_call();
  }

  const SimProgram& program() const { return simulation_->program(); }
  const std::vector<int32_t>& layout() const { return layout_; }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  std::vector<int32_t> pick_layout() {
    std::vector<int32_t> layout;
    const int64_t nodes = 1 + below(4);
    for (int64_t n = 0; n < nodes; ++n) layout.push_back(static_cast<int32_t>(1 + below(3)));
    return layout;
  }

  void add_call() {
    Problem problem{.rows = {}, .k = below(4) == 0 ? 0 : 1 + below(30), .dtype = DataType::bf16, .cols = {}};
    const int64_t weights = 1 + below(2);
    for (int64_t w = 0; w < weights; ++w) problem.cols.push_back(below(4) == 0 ? 0 : below(24));
    const int64_t chunk_rows = 1 + below(8);
    std::vector<bool> own_in_user;
    std::vector<PlanChoice> choices;
    for (int32_t r = 0; r < ranks_; ++r) {
      problem.rows.push_back(below(3) == 0 ? 0 : below(20));
      own_in_user.push_back(below(3) == 0);
      choices.push_back(choice(chunk_rows));
    }
    simulation_->add_call(problem, choices, {}, [&](Schedule& s) { s.own_in_user = own_in_user[s.me().value]; });
  }

  PlanChoice choice(int64_t chunk_rows) {
    return {
        .chunk_rows = chunk_rows,
        .is_fused = below(4) != 0,
        .tile_rows = static_cast<int32_t>(1 + below(9)),
        .tile_cols = 8,
        .raster_rows = static_cast<int32_t>(1 + below(3)),
        .workers = static_cast<int32_t>(1 + below(3)),
        .cursors = {.load_ahead = static_cast<int32_t>(below(4)), .publish_behind = static_cast<int32_t>(below(4))}};
  }

  std::mt19937_64 random_;
  std::vector<int32_t> layout_;
  int32_t ranks_;
  std::unique_ptr<Simulation> simulation_;
};

TEST(SimulatorSoak, RandomSequencesOfFourCallsKeepEveryRule) {
  SoakClock clock(soak_run().is_long ? 2000 : 40);
  int64_t pieces = 0;
  uint64_t seed = soak_run().seed;
  for (; clock.goes_on(); ++seed) {
    const Sequence sequence(seed);
    SimOptions options;
    options.has_strict_load_ahead = seed % 2 == 0;
    const SimReport report = run_random_seeds(sequence.program(), options, seed * 1000, 4);
    ASSERT_TRUE(report.ok()) << "--seed=" << seed << ", layout " << testing::PrintToString(sequence.layout()) << "\n"
                             << report.text();
    pieces += report.pieces_of_work;
  }
  EXPECT_GT(pieces, 0) << "nothing was walked";
  std::printf("%lld pieces of work in %llu sequences, seeds from %llu on\n", static_cast<long long>(pieces),
              static_cast<unsigned long long>(seed - soak_run().seed),
              static_cast<unsigned long long>(soak_run().seed));
}

// The soak would see a broken rule: one lost signal is found within as many sequences as the short run walks.
TEST(SimulatorSoak, ALostSignalIsFound) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const Sequence sequence(seed);
    SimOptions options;
    options.faults.push_back({.fault = SimFault::drop_signal, .role = "done", .nth = -1});
    if (!run_random_seeds(sequence.program(), options, seed * 1000, 4).ok()) return;
  }
  FAIL() << "forty sequences without `done` were taken for right";
}

}  // namespace
}  // namespace tilewire::ag_gemm

// AllGather+GEMM in the simulator: the same iterators as in the host executor, with everything delayed and reordered.
#include <gtest/gtest.h>

#include <deque>

#include "ops/ag_gemm/model.h"
#include "ops/ag_gemm/plan.h"
#include "schedule/simulator/exhaustive_run.h"
#include "schedule/simulator/random_run.h"
#include "schedule/topology_tables.h"

namespace tilewire::ag_gemm {
namespace {

struct Shape {
  std::vector<int64_t> rows;
  int64_t k = 16;
  int64_t n = 16;
  PlanChoice choice{};
  bool wants_gathered = false;
  bool own_in_user = false;
};

// A program of AllGather+GEMM calls on one arena, and the tables behind it.
class Calls {
 public:
  explicit Calls(const std::vector<int32_t>& ranks_per_node, Epoch first_epoch = 2) {
    program.topology = TopologyTables::from_layout(ranks_per_node);
    program.arena = {.flags = {.ranks = program.ranks(), .max_chunks = 64},
                     .half_stride_bytes = int64_t{1} << 20, .user_stride_bytes = int64_t{1} << 18};
    program.first_epoch = first_epoch;
    program.rings = ranks_per_node.size() > 1 ? 2 : 0;
  }

  void add(const Shape& shape) {
    const Problem problem{.rows = shape.rows, .k = shape.k, .cols = {shape.n}, .wants_gathered = shape.wants_gathered};
    SimCall& call = program.add_call();
    const Epoch epoch = program.epoch(static_cast<int32_t>(program.calls.size()) - 1);
    for (int32_t r = 0; r < program.ranks(); ++r) {
      const PlanContext context{.topology = program.topology.view(), .me = Rank{r}, .arena = program.arena,
                                .machine = {}, .workers = shape.choice.workers};
      Schedule s = tables_.emplace_back(problem, shape.choice, context).schedule(epoch);
      s.own_in_user = shape.own_in_user;
      add_rank(call, s, shape.choice.cursors, shape.k);
    }
  }

  SimProgram program;

 private:
  std::deque<ScheduleTables> tables_;
};

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  int32_t below(int32_t n) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((state_ >> 33) % static_cast<uint64_t>(n));
  }

 private:
  uint64_t state_;
};

// Ragged, uneven, some ranks or all without rows.
Shape random_shape(Dice& dice, int32_t ranks) {
  Shape s;
  const int32_t most = 1 + dice.below(40);
  for (int32_t r = 0; r < ranks; ++r) s.rows.push_back(dice.below(4) == 0 ? 0 : dice.below(most));
  s.k = 8 * (1 + dice.below(4)) - dice.below(2) * 3;
  s.n = 1 + dice.below(40);
  s.choice.chunk_rows = 1 + dice.below(16);
  s.choice.tile_rows = 1 + dice.below(20);
  s.choice.tile_cols = 1 + dice.below(20);
  s.choice.raster_rows = 1 + dice.below(3);
  s.choice.workers = 1 + dice.below(3);
  s.choice.is_fused = dice.below(4) > 0;
  s.choice.cursors = {dice.below(3), dice.below(3)};
  s.wants_gathered = dice.below(3) == 0;
  s.own_in_user = dice.below(3) == 0;
  return s;
}

const std::vector<std::vector<int32_t>> kLayouts{{1}, {2}, {4}, {1, 1}, {2, 2}, {3, 1}, {2, 3}, {1, 1, 2}};

TEST(AgGemmSimulation, SequencesOfFourCallsAreCleanOnEvenAndUnevenNodes) {
  for (const auto& layout : kLayouts) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      Dice dice(seed);
      Calls calls(layout, seed % 2 == 0 ? Epoch{2} : (Epoch{1} << 32) - 3);
      for (int i = 0; i < 4; ++i) calls.add(random_shape(dice, calls.program.ranks()));
      for (const bool is_strict : {false, true}) {
        SimOptions options;
        options.has_strict_load_ahead = is_strict;
        const SimReport report = run_random_seeds(calls.program, options, seed * 6, 6);
        ASSERT_TRUE(report.ok()) << report.text() << "\nsequence " << seed << " on "
                                 << calls.program.topology.describe();
      }
    }
  }
}

TEST(AgGemmSimulation, ASmallCallIsCleanInEveryOrder) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{2}, {1, 1}}) {
    for (const SimNetwork network : {SimNetwork::ordered, SimNetwork::counted}) {
      Calls calls(layout);
      Shape shape{.rows = {2, 2}};
      shape.choice.chunk_rows = 2;
      shape.choice.tile_rows = 2;
      calls.add(shape);
      SimOptions options;
      options.network = network;
      const SimReport report = run_exhaustive(calls.program, options, 200000);
      EXPECT_TRUE(report.ok()) << report.text();
      EXPECT_TRUE(report.is_complete) << report.states;
      printf("%ld\n", report.states);
    }
  }
}

Calls two_by_two() {
  Calls calls({2, 2});
  for (int i = 0; i < 3; ++i) {
    Shape shape{.rows = {8, 5 + i, 8, 7}};
    shape.choice.chunk_rows = 3;
    shape.choice.tile_rows = 4;
    shape.choice.tile_cols = 8;
    calls.add(shape);
  }
  return calls;
}

struct Planted {
  const char* name;
  PlantedFault fault;
  ViolationKind kind;
};

TEST(AgGemmSimulation, PlantedFaultsAreNamed) {
  const Calls calls = two_by_two();
  const std::vector<Planted> faults{
      {"push drops a signal", {.fault = SimFault::drop_signal, .role = "push", .rank = 1, .nth = 2},
       ViolationKind::wait_without_signal},
      {"forward signals early", {.fault = SimFault::early_signal, .role = "forward", .nth = -1},
       ViolationKind::read_too_early},
      {"push writes the wrong slot", {.fault = SimFault::wrong_slot, .role = "push", .rank = 0, .nth = 1},
       ViolationKind::wrong_slot},
      {"send writes the wrong slot", {.fault = SimFault::wrong_slot, .role = "send", .rank = 3, .nth = 0},
       ViolationKind::wrong_slot},
      {"compute ignores records", {.fault = SimFault::drop_need, .role = "compute", .rank = 0,
                                   .word = calls.program.arena.flags.begun(Rank{1})},
       ViolationKind::record_unmatched},
      {"done ignores sent", {.fault = SimFault::drop_need, .role = "done", .word = FlagLayout::sent()},
       ViolationKind::done_too_early},
  };
  for (const Planted& p : faults) {
    SimOptions options;
    options.faults = {p.fault};
    bool is_named = false;
    for (uint64_t seed = 1; seed <= 300 && !is_named; ++seed) {
      is_named = run_random_seeds(calls.program, options, seed, 1).has(p.kind);
    }
    EXPECT_TRUE(is_named) << p.name << "\n" << run_random_seeds(calls.program, options, 1, 300).text();
  }
}

}  // namespace
}  // namespace tilewire::ag_gemm

// The protocol of AllGather+GEMM in the simulator: random sequences of calls on one arena, every order for small cases,
// and rules broken on purpose, which must be named.
#include "ops/ag_gemm/model.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/ag_gemm/random_calls.h"
#include "testing/judged_runs.h"
#include "testing/sanitized.h"
#include "testing/simulation_test_support.h"
#include "testing/taken_works.h"

namespace tilewire::ag_gemm {
namespace {

PlanChoice small_plan(int32_t workers = 2) {
  return {.chunk_rows = 4,
          .is_fused = true,
          .tile_rows = 4,
          .tile_cols = 8,
          .raster_rows = 2,
          .workers = workers,
          .cursors = {}};
}

Problem problem(std::vector<int64_t> rows, int64_t k = 8, int64_t n = 12) {
  return {.rows = std::move(rows), .k = k, .dtype = DataType::bf16, .cols = {n}};
}

TEST(AgGemmSimulation, RandomSequencesOfFourCallsKeepEveryRule) {
  expect_random_sequences_keep_every_rule({&OpRandomCalls<Op>::add}, 25);
}

TEST(AgGemmSimulation, EveryOrderOfASmallCallKeepsEveryRule) {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
    OpSimulation simulation = small_simulation(layout);
    simulation.add_call<RankModel>(problem({4, 4}, 8, 8), {small_plan(1)});
    expect_every_order_keeps_every_rule(simulation);
  }
}

// ---- who takes a tile -----------------------------------------------------------------------------------------------

// Otherwise a worker could wait with a tile for what only another tile brings.
TEST(AgGemmSimulation, WhoTakesATileIsFree) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}, Layout{4}}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      OpSimulation simulation = small_simulation(layout);
      for (int call = 0; call < 3; ++call) {
        std::vector<int64_t> rows;
        for (int32_t r = 0; r < ranks_of(layout); ++r) rows.push_back((r * 5 + call * 3) % 13);
        simulation.add_call<TakenRankModel<RankModel, ComputeRole>>(problem(rows, 8, 20), {small_plan(3)});
      }
      const SimReport report = walk_sequence(simulation, seed);
      EXPECT_TRUE(report.ok()) << report.text();
    }
  }
}

// ---- the order of row blocks ----------------------------------------------------------------------------------------

// A chunk that came straight from its source.
struct Arrival {
  ChunkRef chunk;
  double expected_s = 0;   // as the row order takes it
  int64_t arrived_ns = 0;  // as the clocked walk of the iterators has it
};
using Arrivals = std::map<std::pair<int32_t, TraceLink>, std::vector<Arrival>>;  // by receiver and kind of link

// When the pieces of work of a rank's agent that move chunks ended, in their order.
std::vector<int64_t> ends_of(const TimedReport& timed, int32_t rank, const std::string& role, int32_t worker = 0) {
  std::vector<int64_t> ends;
  for (const TraceEvent& e : timed.trace) {
    if (e.rank == rank && e.role == role && e.worker == worker && e.name == std::string("chunk"))
      ends.push_back(e.t_end_ns);
  }
  return ends;
}

Arrivals direct_arrivals(const std::vector<int32_t>& layout, const Problem& p, const Machine& machine,
                         int32_t push_workers) {
  const TopologyTables topology = TopologyTables::from_layout(layout);
  PlanChoice choice = small_plan(1);
  choice.push_workers = push_workers;
  std::vector<ScheduleTables> tables;
  std::vector<Schedule> schedules;
  const auto context = [&](int32_t r) {
    return PlanContext{.topology = topology.view(),
                       .me = Rank{r},
                       .arena = small_arena(ranks_of(layout)),
                       .machine = machine,
                       .workers = 1};
  };
  for (int32_t r = 0; r < ranks_of(layout); ++r) tables.emplace_back(p, choice, context(r));
  for (const ScheduleTables& t : tables) schedules.push_back(t.schedule(2));
  const TimedReport timed = simulate(p, choice, topology, context(0), true);
  Arrivals arrivals;
  const auto add = [&](Rank to, ChunkRef chunk, TraceLink link, int64_t at_ns) {
    const auto local = static_cast<size_t>(topology.view().local(to).value);
    const std::vector<double>& expected_s = tables[static_cast<size_t>(to.value)].arrivals_s()[local];
    const auto number = static_cast<size_t>(schedules[static_cast<size_t>(to.value)].chunks.global(chunk));
    arrivals[{to.value, link}].push_back({chunk, expected_s[number], at_ns});
  };
  for (int32_t r = 0; r < ranks_of(layout); ++r) {
    for (int32_t worker = 0; worker < push_workers; ++worker) {
      const std::vector<int64_t> pushed = ends_of(timed, r, "push", worker);
      size_t pushes = 0;
      CopyWork copy;
      for (PushRole role(schedules[r], worker); role.next(copy); ++pushes) {
        if (copy.to != Rank{r}) add(copy.to, copy.chunk, TraceLink::node, pushed.at(pushes));
      }
      EXPECT_EQ(pushes, pushed.size());
    }
    const std::vector<int64_t> landed = ends_of(timed, r, "in flight");
    size_t lands = 0;
    SendWork send;
    for (SendRole role(schedules[r]); role.next(send);) {
      if (send.command.kind != CommandKind::write) continue;
      add(send.command.peer, send.chunk, TraceLink::network, landed.at(lands++));
    }
    EXPECT_EQ(lands, landed.size());
  }
  return arrivals;
}

// The planner's walk of the moving roles (arrivals.h) against the walk of all roles with all their words. Also where
// several ranks of a node send to one port, and where several push workers of a rank do.
void expect_arrivals_as_expected(int32_t push_workers) {
  // Signals and steps are short beside transfers: which of two commands comes first does not hang on them.
  const Machine machine{
      .node_bytes_per_s = 2e9, .network_bytes_per_s = 1e8, .node_latency_s = 1e-8, .step_s = 1e-7, .command_s = 1e-8};
  for (const auto& layout :
       std::vector<std::vector<int32_t>>{{4}, {1, 1, 1}, {2, 2, 2}, {3, 1}, {1, 2, 1}, {2, 3}, {1, 3, 2}}) {
    std::vector<int64_t> rows;  // whole chunks, another number of them on each rank
    for (int32_t r = 0; r < ranks_of(layout); ++r) rows.push_back(4 * ((r * 5 + 3) % 7));
    int compared = 0;
    for (const auto& [where, group] : direct_arrivals(layout, problem(rows, 512), machine, push_workers)) {
      for (const Arrival& a : group) {
        // Queues before a port are in the expectation: several ranks that send to one take turns.
        EXPECT_NEAR(a.expected_s * 1e9, static_cast<double>(a.arrived_ns), 0.05 * static_cast<double>(a.arrived_ns))
            << testing::PrintToString(layout) << ", at rank " << where.first << ": chunk " << a.chunk.chunk.value
            << " of rank " << a.chunk.source.value;
        for (const Arrival& b : group) {
          if (a.expected_s + 1e-6 >= b.expected_s) continue;  // a transfer takes 2 us at least
          ++compared;
          EXPECT_LE(a.arrived_ns, b.arrived_ns)
              << testing::PrintToString(layout) << ", at rank " << where.first << " over " << to_string(where.second)
              << ": chunk " << a.chunk.chunk.value << " of rank " << a.chunk.source.value << " before chunk "
              << b.chunk.chunk.value << " of rank " << b.chunk.source.value;
        }
      }
    }
    EXPECT_GT(compared, 0) << testing::PrintToString(layout);
  }
}

TEST(AgGemmSimulation, ChunksOverOneKindOfLinkArriveInTheOrderInWhichTheyAreExpected) {
  for (const int32_t push_workers : {1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << push_workers << " push workers");
    expect_arrivals_as_expected(push_workers);
  }
}

TEST(AgGemmSimulation, ATraceCountsEachByteOfTheNetworkOnce) {
  const TopologyTables topology = TopologyTables::from_layout({2, 1});
  const Problem p = problem({8, 4, 16}, 512);
  const PlanContext context{
      .topology = topology.view(), .me = Rank{0}, .arena = small_arena(3), .machine = {}, .workers = 1};
  int64_t bytes = 0;
  for (const TraceEvent& e : simulate(p, small_plan(1), topology, context, true).trace) {
    if (e.link == TraceLink::network) bytes += e.bytes;
  }
  const int64_t shards = (8 + 4 + 16) * 512 * 2, records = 4 * kWireUnitBytes;
  EXPECT_EQ(bytes, shards + records) << "each shard crosses the one pair of nodes once, each record its pair of ranks";
}

// ---- what the planner says and what the simulator says ----

struct Shape {
  std::vector<int32_t> layout;
  std::vector<int64_t> rows;
  int64_t k = 0;
  std::vector<int64_t> cols;
  int32_t workers = 1;
  bool is_even = true;  // ranks and rows
  bool wants_gathered = false;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {
      {{2, 2}, {128, 128, 128, 128}, 2048, {2048}},
      {{2, 2}, {512, 512, 512, 512}, 4096, {128}},
      {{2, 2}, {128, 128, 128, 128}, 2048, {0}},
      {{2, 2}, {128, 128, 128, 128}, 0, {256}},
      {{2, 2}, {128, 128, 128, 128}, 2048, {256}, 1, true, true},
      {{2, 2}, {5, 5, 5, 5}, 64, {64}},
      {{4}, {512, 512, 512, 512}, 4096, {1024}, 2},
      {{1}, {512}, 4096, {1024}, 2},
      {{4, 4}, {256, 256, 256, 256, 256, 256, 256, 256}, 4096, {512, 100}, 16},
      {{1, 1}, {512, 100}, 4096, {1024}, 2, false},
      {{3, 1}, {512, 512, 512, 512}, 4096, {256}, 2, false},
      {{3, 1}, {100, 0, 37, 512}, 1000, {250, 70}, 2, false},
      {{2, 3}, {512, 0, 37, 512, 90}, 4096, {100, 30}, 2, false},
      {{1, 1, 2}, {64, 64, 64, 64}, 1024, {4096}, 4, false},
      {{1, 3, 2}, {64, 64, 64, 64, 300, 1}, 1024, {512}, 4, false},
  };
  return kShapes;
}

Judged<RankModel> judged(const Shape& shape, double network_bytes_per_s) {
  Problem p{.rows = shape.rows, .k = shape.k, .dtype = DataType::bf16, .cols = shape.cols};
  p.wants_gathered = shape.wants_gathered;
  Machine machine;
  machine.network_bytes_per_s = network_bytes_per_s;
  return {shape.layout, std::move(p), machine, shape.workers};
}

TEST(AgGemmSimulation, ThePlannersNumbersAndTheSimulatorsDoNotContradictEachOther) {
  for (const Shape& shape : part_if_sanitized(shapes())) {
    // Ranks that differ from rank 0 are not in its prediction.
    const double bound = shape.is_even ? 0.1 : 0.25;
    for (const double network_bytes_per_s : {4e9, 2e8}) judged(shape, network_bytes_per_s).expect_agreement(bound);
  }
}

// A plan with more push workers than one is given; what the planner then predicts must hold as well. Where copies are
// what a call waits for, it gets shorter.
TEST(AgGemmSimulation, ThePlannersNumbersHoldForEveryNumberOfPushWorkers) {
  for (const Shape& shape : part_if_sanitized(shapes())) {
    for (const int32_t push_workers : {1, 2, 3}) {
      const Judged<RankModel> run = judged(shape, 4e9);
      PlanChoice choice = run.plan().choice;
      EXPECT_EQ(choice.push_workers, 1);
      choice.push_workers = push_workers;
      run.expect_agreement(choice, shape.is_even ? 0.1 : 0.25);
    }
  }
  const Judged<RankModel> copies = judged({{1, 1}, {512, 512}, 4096, {0}}, 4e11);
  PlanChoice choice = copies.plan().choice;
  choice.chunk_rows = 64;
  const double one_s = copies.simulated_s(choice), planned_one_s = copies.plan(choice).predicted_s;
  choice.push_workers = 2;
  EXPECT_LT(copies.simulated_s(choice), 0.8 * one_s);
  EXPECT_LT(copies.plan(choice).predicted_s, 0.8 * planned_one_s);
}

// One row block at a time, and few columns: the same worker would get the narrow tile each time.
TEST(AgGemmSimulation, TheOrderOfTilesIsChosenByWhatItCosts) {
  const auto raster_rows = [](const Shape& shape) { return judged(shape, 4e8).plan().choice.raster_rows; };
  const auto simulated_s = [](const Shape& shape, int32_t rows) {
    const Judged<RankModel> run = judged(shape, 4e8);
    PlanChoice choice = run.plan().choice;
    choice.raster_rows = rows;
    return run.simulated_s(choice);
  };
  const Shape few_columns{{2, 3}, {512, 0, 37, 512, 90}, 4096, {100, 30}, 2};
  EXPECT_EQ(raster_rows(few_columns), 4);
  EXPECT_GT(simulated_s(few_columns, 1), 1.2 * simulated_s(few_columns, 4));
  const Shape many_columns{{1, 1}, {512, 100}, 4096, {1024}, 2};
  EXPECT_EQ(raster_rows(many_columns), 1);
  EXPECT_GT(simulated_s(many_columns, 4), 1.04 * simulated_s(many_columns, 1));
}

// ---- planted faults -------------------------------------------------------------------------------------------------

// `cols` = 0: no tile reads a chunk.
OpSimulation three_calls(const Layout& layout, int64_t cols = 12) {
  OpSimulation simulation = small_simulation(layout);
  for (int call = 0; call < 3; ++call) {
    const std::vector<int64_t> rows(static_cast<size_t>(ranks_of(layout)), 8 + call);
    simulation.add_call<RankModel>(problem(rows, 8, cols), {small_plan()});
  }
  return simulation;
}

TEST(AgGemmSimulation, FaultsOfTheRolesThatAllOpsHaveAreNamed) {
  for (const Layout& layout : {Layout{2, 2}, Layout{3, 1}}) expect_faults_of_call_roles_are_named(three_calls(layout));
  expect_missing_drain_is_named(three_calls({2, 2}, 0));
}

TEST(AgGemmSimulation, ALostSignalOfAnyRoleIsNamed) {
  for (const char* role : {"push", "forward", "send"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1},
                 {ViolationKind::wait_without_signal});
  }
}

TEST(AgGemmSimulation, ASignalBeforeItsDataIsNamed) {
  for (const char* role : {"push", "forward"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::early_signal, .role = role, .nth = -1},
                 {ViolationKind::read_too_early, ViolationKind::done_too_early});
  }
}

TEST(AgGemmSimulation, AChunkInTheWrongSlotIsNamed) {
  for (const char* role : {"push", "forward"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::wrong_slot, .role = role, .nth = 1},
                 {ViolationKind::wrong_slot, ViolationKind::overwritten, ViolationKind::read_too_early});
  }
}

TEST(AgGemmSimulation, ATileOrAForwardThatDoesNotWaitForItsChunkIsNamed) {
  for (const char* role : {"compute", "forward", "send"}) {
    expect_named(three_calls({2, 2}), {.fault = SimFault::drop_need, .role = role},
                 {ViolationKind::read_too_early, ViolationKind::record_unmatched, ViolationKind::signal_without_wait});
  }
}

}  // namespace
}  // namespace tilewire::ag_gemm

// The protocol of AllGather+GEMM in the simulator: random sequences of calls on one arena, every order for small cases,
// and rules broken on purpose, which must be named.
#include "ops/ag_gemm/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "schedule/simulator/exhaustive_run.h"
#include "schedule/simulator/random_run.h"

namespace tilewire::ag_gemm {
namespace {

ArenaLayout small_arena(int32_t ranks) {
  return {.flags = {.ranks = ranks, .max_chunks = 32}, .half_stride_bytes = 1 << 20, .user_stride_bytes = 1 << 20};
}

int32_t count(const std::vector<int32_t>& layout) {
  int32_t ranks = 0;
  for (const int32_t l : layout) ranks += l;
  return ranks;
}

Simulation make_simulation(const std::vector<int32_t>& layout, Epoch first_epoch = 2) {
  return Simulation(TopologyTables::from_layout(layout), small_arena(count(layout)), first_epoch);
}

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

// Four calls of different shapes and plans, with zero rows, chunks that nobody reads (N = 0) and calls that move
// nothing.
Simulation random_sequence(const std::vector<int32_t>& layout, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return static_cast<int64_t>(random() % n); };
  Simulation sim = make_simulation(layout, (Epoch{1} << 32) - 3);
  const int32_t ranks = count(layout);
  for (int call = 0; call < 4; ++call) {
    Problem p = problem({}, below(4) == 0 ? 0 : 8 * below(4) + below(3), below(4) == 0 ? 0 : below(20));
    std::vector<bool> own_in_user;
    std::vector<PlanChoice> choices;
    const int64_t chunk_rows = 1 + below(6);
    for (int32_t r = 0; r < ranks; ++r) {
      p.rows.push_back(below(3) == 0 ? 0 : below(14));
      own_in_user.push_back(below(3) == 0);
      choices.push_back({.chunk_rows = chunk_rows,
                         .is_fused = below(4) != 0,
                         .tile_rows = static_cast<int32_t>(1 + below(7)),
                         .tile_cols = 8,
                         .raster_rows = static_cast<int32_t>(1 + below(3)),
                         .workers = static_cast<int32_t>(1 + below(2)),
                         .cursors = {.load_ahead = static_cast<int32_t>(below(3)),
                                     .publish_behind = static_cast<int32_t>(below(3))}});
    }
    sim.add_call(p, choices, {}, [&](Schedule& s) { s.own_in_user = own_in_user[s.me().value]; });
  }
  return sim;
}

TEST(AgGemmSimulation, RandomSequencesOfFourCallsKeepEveryRule) {
  const std::vector<std::vector<int32_t>> layouts = {{1}, {2}, {2, 2}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {1, 1, 1}};
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    for (const auto& layout : layouts) {
      const Simulation sim = random_sequence(layout, seed);
      SimOptions options;
      options.has_strict_load_ahead = seed % 2 == 0;  // as a thread that waits ahead and works, or as separate warps
      const SimReport report = run_random_seeds(sim.program(), options, seed * 1000, 4);
      ASSERT_TRUE(report.ok()) << testing::PrintToString(layout) << " sequence " << seed << "\n" << report.text();
      ASSERT_GT(report.pieces_of_work, 0);
    }
  }
}

TEST(AgGemmSimulation, EveryOrderOfASmallCallKeepsEveryRule) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{2}, {1, 1}}) {
    for (const SimNetwork network : {SimNetwork::ordered, SimNetwork::counted}) {
      Simulation sim = make_simulation(layout);
      sim.add_call(problem({4, 4}, 8, 8), {small_plan(1)});
      SimOptions options;
      options.network = network;
      const SimReport report = run_exhaustive(sim.program(), options, 2'000'000);
      EXPECT_TRUE(report.ok()) << report.text();
      EXPECT_TRUE(report.is_complete);
      EXPECT_GT(report.states, 10);
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

// When the pieces of work of a rank's role that move chunks ended, in their order.
std::vector<int64_t> ends_of(const TimedReport& timed, int32_t rank, const std::string& role) {
  std::vector<int64_t> ends;
  for (const TraceEvent& e : timed.trace) {
    if (e.rank == rank && e.role == role && e.name == std::string("chunk")) ends.push_back(e.t_end_ns);
  }
  return ends;
}

Arrivals direct_arrivals(const std::vector<int32_t>& layout, const Problem& p, const Machine& machine) {
  const TopologyTables topology = TopologyTables::from_layout(layout);
  const PlanChoice choice = small_plan(1);
  std::vector<ScheduleTables> tables;
  std::vector<Schedule> schedules;
  const auto context = [&](int32_t r) {
    return PlanContext{.topology = topology.view(),
                       .me = Rank{r},
                       .arena = small_arena(count(layout)),
                       .machine = machine,
                       .workers = 1};
  };
  for (int32_t r = 0; r < count(layout); ++r) tables.emplace_back(p, choice, context(r));
  for (const ScheduleTables& t : tables) schedules.push_back(t.schedule(2));
  const TimedReport timed = simulate(p, choice, topology, context(0), true);
  Arrivals arrivals;
  const auto add = [&](Rank to, ChunkRef chunk, TraceLink link, int64_t at_ns) {
    const auto local = static_cast<size_t>(topology.view().local(to).value);
    const std::vector<double>& expected_s = tables[static_cast<size_t>(to.value)].arrivals_s()[local];
    const auto number = static_cast<size_t>(schedules[static_cast<size_t>(to.value)].chunks.global(chunk));
    arrivals[{to.value, link}].push_back({chunk, expected_s[number], at_ns});
  };
  for (int32_t r = 0; r < count(layout); ++r) {
    const std::vector<int64_t> pushed = ends_of(timed, r, "push"), landed = ends_of(timed, r, "wire");
    size_t pushes = 0, lands = 0;
    CopyWork copy;
    for (PushRole role(schedules[r]); role.next(copy); ++pushes) {
      if (copy.to != Rank{r}) add(copy.to, copy.chunk, TraceLink::node, pushed.at(pushes));
    }
    SendWork send;
    for (SendRole role(schedules[r]); role.next(send);) {
      if (send.command.kind != CommandKind::write) continue;
      add(send.command.peer, send.chunk, TraceLink::network, landed.at(lands++));
    }
    EXPECT_EQ(pushes, pushed.size());
    EXPECT_EQ(lands, landed.size());
  }
  return arrivals;
}

// The planner's walk of the moving roles (arrivals.h) against the walk of all roles with all their words. Also where
// several ranks of a node send to one port.
TEST(AgGemmSimulation, ChunksOverOneKindOfLinkArriveInTheOrderInWhichTheyAreExpected) {
  // Signals and steps are short beside transfers: which of two commands comes first does not hang on them.
  const Machine machine{
      .node_bytes_per_s = 2e9, .network_bytes_per_s = 1e8, .node_latency_s = 1e-8, .step_s = 1e-7, .command_s = 1e-8};
  for (const auto& layout :
       std::vector<std::vector<int32_t>>{{4}, {1, 1, 1}, {2, 2, 2}, {3, 1}, {1, 2, 1}, {2, 3}, {1, 3, 2}}) {
    std::vector<int64_t> rows;  // whole chunks, another number of them on each rank
    for (int32_t r = 0; r < count(layout); ++r) rows.push_back(4 * ((r * 5 + 3) % 7));
    int compared = 0;
    for (const auto& [where, group] : direct_arrivals(layout, problem(rows, 512), machine)) {
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

// ---- what the planner says and what the simulator says ----

// Seconds for which the busiest direction of any port is busy, by the bytes that the roles move.
double busiest_link_s(const std::vector<Schedule>& schedules, const Machine& m) {
  std::map<std::pair<int32_t, std::string>, double> busy_s;
  const auto add = [&](Rank from, Rank to, double bytes, const char* kind, double rate) {
    busy_s[{from.value, kind + std::string(" out")}] += bytes / rate;
    busy_s[{to.value, kind + std::string(" in")}] += bytes / rate;
  };
  for (const Schedule& s : schedules) {
    const auto copies = [&]<class Role>(Role role) {
      for (CopyWork w; role.next(w);) {
        if (w.to != s.me()) add(s.me(), w.to, static_cast<double>(s.bytes(w.chunk)), "node", m.node_bytes_per_s);
      }
    };
    copies(PushRole(s));
    copies(ForwardRole(s));
    SendWork w;
    for (SendRole role(s); role.next(w);) {
      if (w.command.kind != CommandKind::write) continue;
      add(s.me(), w.command.peer, static_cast<double>(s.bytes(w.chunk)), "network", m.network_bytes_per_s);
    }
  }
  double most_s = 0;
  for (const auto& [port, seconds] : busy_s) most_s = std::max(most_s, seconds);
  return most_s;
}

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

// A shape on a cluster, seen from rank 0.
class Judged {
 public:
  Judged(const Shape& shape, double network_bytes_per_s) : topology_(TopologyTables::from_layout(shape.layout)) {
    problem_ = {.rows = shape.rows, .k = shape.k, .dtype = DataType::bf16, .cols = shape.cols};
    problem_.wants_gathered = shape.wants_gathered;
    machine_.network_bytes_per_s = network_bytes_per_s;
    arena_ = small_arena(topology_.view().ranks);
    arena_.half_stride_bytes = int64_t{1} << 30;
    workers_ = shape.workers;
  }
  PlanContext context(int32_t rank) const {
    return {.topology = topology_.view(), .me = Rank{rank}, .arena = arena_, .machine = machine_, .workers = workers_};
  }
  const Problem& problem() const { return problem_; }
  Plan plan() const { return make_plan(problem_, context(0)); }
  Plan plan(const PlanChoice& choice) const { return check_plan(choice, problem_, context(0)); }
  double simulated_s(const PlanChoice& choice) const {
    return simulate(problem_, choice, topology_, context(0), false).seconds;
  }
  double link_s(const PlanChoice& choice) const {
    std::vector<ScheduleTables> tables;
    std::vector<Schedule> schedules;
    for (int32_t r = 0; r < topology_.view().ranks; ++r) tables.emplace_back(problem_, choice, context(r));
    for (const ScheduleTables& t : tables) schedules.push_back(t.schedule(2));
    return busiest_link_s(schedules, machine_);
  }

 private:
  TopologyTables topology_;
  Problem problem_;
  Machine machine_;
  ArenaLayout arena_;
  int32_t workers_ = 1;
};

bool is_of_own_part(const Candidate& c) { return c.verdict == "chosen" || c.verdict.rfind("predicted", 0) == 0; }

TEST(AgGemmSimulation, ThePlannersNumbersAndTheSimulatorsDoNotContradictEachOther) {
  for (const Shape& shape : shapes()) {
    for (const double network_bytes_per_s : {4e9, 2e8}) {
      const Judged judged(shape, network_bytes_per_s);
      for (const Candidate& c : judged.plan().candidates) {
        if (!is_of_own_part(c) || c.choice.workers != shape.workers) continue;
        const Plan plan = judged.plan(c.choice);
        const double simulated_s = judged.simulated_s(c.choice), link_s = judged.link_s(c.choice);
        SCOPED_TRACE(testing::PrintToString(shape.layout) + " " + judged.problem().text() + "\n" + plan.explain());
        EXPECT_GE(simulated_s, plan.compute_s);
        EXPECT_GE(simulated_s, link_s);
        EXPECT_GE(plan.communication_s, link_s * (1 - 1e-9));
        EXPECT_GE(plan.predicted_s, std::max(plan.compute_s, plan.communication_s));
        // Ranks that differ from rank 0 are not in its prediction.
        const double bound = shape.is_even ? 0.1 : 0.25;
        EXPECT_NEAR(plan.predicted_s / simulated_s, 1, bound);
      }
    }
  }
}

// One row block at a time, and few columns: the same worker would get the narrow tile each time.
TEST(AgGemmSimulation, TheOrderOfTilesIsChosenByWhatItCosts) {
  const auto raster_rows = [](const Shape& shape) { return Judged(shape, 4e8).plan().choice.raster_rows; };
  const auto simulated_s = [](const Shape& shape, int32_t rows) {
    const Judged judged(shape, 4e8);
    PlanChoice choice = judged.plan().choice;
    choice.raster_rows = rows;
    return judged.simulated_s(choice);
  };
  const Shape few_columns{{2, 3}, {512, 0, 37, 512, 90}, 4096, {100, 30}, 2};
  EXPECT_EQ(raster_rows(few_columns), 4);
  EXPECT_GT(simulated_s(few_columns, 1), 1.2 * simulated_s(few_columns, 4));
  const Shape many_columns{{1, 1}, {512, 100}, 4096, {1024}, 2};
  EXPECT_EQ(raster_rows(many_columns), 1);
  EXPECT_GT(simulated_s(many_columns, 4), 1.04 * simulated_s(many_columns, 1));
}

// ---- planted faults -------------------------------------------------------------------------------------------------

Simulation three_calls(const std::vector<int32_t>& layout) {
  Simulation sim = make_simulation(layout);
  const int32_t ranks = count(layout);
  for (int call = 0; call < 3; ++call) sim.add_call(problem(std::vector<int64_t>(ranks, 8 + call)), {small_plan()});
  return sim;
}

SimReport hunt(const Simulation& sim, PlantedFault fault) {
  SimOptions options;
  options.faults.push_back(std::move(fault));
  return run_random_seeds(sim.program(), options, 1, 300);
}

TEST(AgGemmSimulation, WithoutAFaultTheCallsOfTheFaultTestsAreClean) {
  for (const auto& layout : std::vector<std::vector<int32_t>>{{2, 2}, {3, 1}}) {
    const SimReport report = run_random_seeds(three_calls(layout).program(), {}, 1, 300);
    EXPECT_TRUE(report.ok()) << report.text();
  }
}

TEST(AgGemmSimulation, ALostSignalOfAnyRoleIsNamed) {
  for (const char* role : {"push", "forward", "send", "begin", "done"}) {
    const SimReport report =
        hunt(three_calls({2, 2}), {.fault = SimFault::drop_signal, .role = role, .rank = 1, .nth = 1});
    EXPECT_TRUE(report.has(ViolationKind::wait_without_signal)) << role << "\n" << report.text();
  }
}

TEST(AgGemmSimulation, ASignalBeforeItsDataIsNamed) {
  for (const char* role : {"push", "forward"}) {
    const SimReport report = hunt(three_calls({2, 2}), {.fault = SimFault::early_signal, .role = role, .nth = -1});
    EXPECT_TRUE(report.has(ViolationKind::read_too_early) || report.has(ViolationKind::done_too_early))
        << role << "\n"
        << report.text();
  }
}

TEST(AgGemmSimulation, AChunkInTheWrongSlotIsNamed) {
  for (const char* role : {"push", "forward"}) {
    const SimReport report = hunt(three_calls({2, 2}), {.fault = SimFault::wrong_slot, .role = role, .nth = 1});
    EXPECT_TRUE(report.has(ViolationKind::wrong_slot) || report.has(ViolationKind::overwritten) ||
                report.has(ViolationKind::read_too_early))
        << role << "\n"
        << report.text();
  }
}

TEST(AgGemmSimulation, ATileOrAForwardThatDoesNotWaitForItsChunkIsNamed) {
  for (const char* role : {"compute", "forward", "send"}) {
    const SimReport report = hunt(three_calls({2, 2}), {.fault = SimFault::drop_need, .role = role});
    EXPECT_FALSE(report.ok()) << role;
    EXPECT_TRUE(report.has(ViolationKind::read_too_early) || report.has(ViolationKind::record_unmatched) ||
                report.has(ViolationKind::signal_without_wait))
        << role << "\n"
        << report.text();
  }
}

TEST(AgGemmSimulation, DoneThatDoesNotHoldSentOfTheCallBeforeIsNamed) {
  const SimReport report =
      hunt(three_calls({2, 2}), {.fault = SimFault::drop_need, .role = "done", .word = FlagLayout::sent()});
  EXPECT_FALSE(report.ok());
  EXPECT_TRUE(report.has(ViolationKind::done_too_early) || report.has(ViolationKind::word_in_flight)) << report.text();
}

TEST(AgGemmSimulation, DoneBeforeUnusedChunksIsNamed) {
  Simulation sim = make_simulation({2, 2});
  for (int call = 0; call < 3; ++call)
    sim.add_call(problem({8, 8, 8, 8}, 8, 0), {small_plan()});  // no tile reads a chunk
  EXPECT_TRUE(run_random_seeds(sim.program(), {}, 1, 100).ok());
  for (SimCall& call : sim.program().calls) call.remove("drain");
  const SimReport report = run_random_seeds(sim.program(), {}, 1, 300);
  EXPECT_TRUE(report.has(ViolationKind::done_too_early) || report.has(ViolationKind::signal_without_wait))
      << report.text();
}

}  // namespace
}  // namespace tilewire::ag_gemm

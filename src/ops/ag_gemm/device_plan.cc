#include "ops/ag_gemm/device_plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/bytes.h"
#include "device/comm/device_rank.h"
#include "operands/matrix_checks.h"
#include "ops/ag_gemm/arrivals.h"
#include "ops/ag_gemm/cost.h"
#include "ops/ag_gemm/gather_times.h"
#include "ops/ag_gemm/model.h"
#include "planning/op_simulation.h"
#include "planning/planner.h"
#include "schedule/call_cost.h"

namespace tilewire::ag_gemm {
namespace {

constexpr double kMemoryBytesPerS = 3.2e12;             // of a GPU
constexpr int64_t kCachedBytes = int64_t{24} << 20;     // what b may have of the cache
constexpr int32_t kClockPushers = 16;                   // stand for the warps of all SMs, where the port bounds them
constexpr int64_t kLeastChunkBytes = int64_t{1} << 15;  // smaller ones cost more than they hide
// What tiles lose to each chunk of the whole matrix, whose flag they look at: 30 to 40 us were measured for 512 more.
constexpr double kChunkPriceS = 0.07e-6;
constexpr double kWarpBytesPerS = 9e9;  // one warp beside the tiles copies a chunk

FusedPlan with_chunks(int64_t chunk_rows) {
  FusedPlan plan;
  plan.choice.chunk_rows = chunk_rows;
  plan.choice.tile_rows = kFusedForms[0].rows;  // one that there is: the shared part says nothing of it
  plan.choice.tile_cols = kFusedForms[0].cols;
  return plan;
}

// When the CTAs of a rank end, each of which takes the next tile when it is free. (A cluster takes two at a time.)
class Ctas {
 public:
  Ctas(const Schedule& s, const FormNumbers& form, int64_t k, const Machine& machine)
      : s_(s), begun_s_(begin_cost_s(s.frame, machine)) {
    const int64_t rounds = div_up(s.grid.tiles(), std::max(1, s.workers));
    const CacheUse use = cache_use(machine.ranks_per_gpu, rounds);
    const double clocks_per_s = machine.worker_flops / kFlopsPerClock;
    work_s_ = std::max(tile_clocks(form, k, use) / clocks_per_s, weights_s(form, k, machine));
    exposed_s_ = tile_clocks(form, k, CacheUse::little) / clocks_per_s;
  }

  double work_s() const { return work_s_; }
  ComputeEnds ends(const std::vector<double>& arrivals_s) const {
    const auto at_once = [](const TileWork&) { return 0.0; };
    const double last_s = std::max(begun_s_, *std::max_element(arrivals_s.begin(), arrivals_s.end()));
    const auto gathered = [&](const TileWork&) { return last_s; };
    const auto behind = [&](const TileWork& w) { return rows_ready_s(s_, w, arrivals_s, begun_s_); };
    return {.alone_s = end_s(at_once), .behind_s = s_.is_fused ? end_s(behind) : end_s(gathered)};
  }

 private:
  // Weights that the cache does not hold are read from memory again for each group of row blocks, by all CTAs of all
  // ranks of the GPU at a time.
  double weights_s(const FormNumbers& form, int64_t k, const Machine& machine) const {
    int64_t cols = 0;
    for (int32_t w = 0; w < s_.columns.weights; ++w) cols += s_.columns.cols[w];
    if (k * cols * kElementBytes <= kCachedBytes) return 0;
    const auto bytes = static_cast<double>(k * form.cols * kElementBytes) / s_.grid.raster_rows;
    return bytes * s_.workers * machine.ranks_per_gpu / kMemoryBytesPerS;
  }

  template <class ReadyS>
  double end_s(const ReadyS& ready_s) const {
    Schedule in_order = s_;
    in_order.workers = 1;
    std::priority_queue<double, std::vector<double>, std::greater<>> free_s;
    for (int32_t i = 0; i < s_.workers; ++i) free_s.push(0);
    double end_s = 0;
    TileWork w;
    for (ComputeRole role(in_order, 0); role.next(w);) {
      const double begin_s = std::max(free_s.top(), ready_s(w));
      free_s.pop();
      // What comes late finds the others waiting, and the cache its own.
      const double took_s = begin_s > end_s ? exposed_s_ : work_s_;
      free_s.push(begin_s + took_s);
      end_s = std::max(end_s, begin_s + took_s);
    }
    return end_s;
  }

  const Schedule& s_;
  double begun_s_;
  double work_s_ = 0, exposed_s_ = 0;
};

}  // namespace

// See planning/planner.h.
class FusedPlanner : public PlannerOf<FusedPlan> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "first and last arrival together";

  FusedPlanner(const Problem& problem, const PlanContext& context, int32_t push_ctas = 0)
      : PlannerOf(problem, context), gather_(problem, context, kClockPushers), push_ctas_(push_ctas) {
    check_one_count_a_rank(kName, p_.rows.size(), x_);
    check_kernel_type(kName, p_.dtype);
  }

  int64_t half_bytes(const FusedPlan&) const { return gather_.half_bytes(); }
  std::string reason_against(const FusedPlan& plan) const {
    if (form_of(plan.choice) == nullptr) return "no kernel has such tiles: " + known_forms();
    return gather_.reason_against(plan.choice.chunk_rows);
  }

  std::vector<FusedPlan> shared_candidates() const {
    const int64_t row_bytes = std::max<int64_t>(1, p_.k * size_bytes(p_.dtype));
    std::vector<FusedPlan> plans;
    for (const int64_t rows : doubling_sizes(div_up(kLeastChunkBytes, row_bytes), gather_.most_rows())) {
      plans.push_back(with_chunks(rows));
    }
    return plans;
  }
  // Tiles begin behind the first rows and end behind the last ones; either chunk is copied, the last one on its receiver's
  // node.
  double shared_cost_s(const FusedPlan& plan) {
    int64_t chunks = 0;
    for (const int64_t rows : p_.rows) chunks += div_up(rows, plan.choice.chunk_rows);
    const auto chunk_bytes = static_cast<double>(plan.choice.chunk_rows * p_.k * kElementBytes);
    return gather_.first_s(plan.choice) + gather_.last_s(plan.choice) + 2 * chunk_bytes / kWarpBytesPerS +
           static_cast<double>(chunks) * kChunkPriceS;
  }

  // Of equals the first is taken.
  std::vector<FusedPlan> candidates(const FusedPlan& shared) const {
    std::vector<FusedPlan> plans;
    for (const FormNumbers& form : kFusedForms) {
      const int32_t left = x_.workers - comm_ctas_of(push_ctas_, x_.topology, form);
      if (left < form.cluster_ctas()) continue;
      FusedPlan plan = shared;
      plan.push_ctas = push_ctas_;
      plan.choice.tile_rows = form.rows;
      plan.choice.tile_cols = form.cols;
      plan.choice.workers = left / form.cluster_ctas() * form.cluster_ctas();
      for (const int32_t raster_works : {8, 4, 2, 1}) {
        plan.choice.raster_rows = raster_works * form.cluster_row_tiles;
        plans.push_back(plan);
      }
      if (x_.topology.ranks == 1) continue;
      plan.choice.is_fused = false;
      plan.choice.raster_rows = 8 * form.cluster_row_tiles;
      plans.push_back(plan);
    }
    if (plans.empty()) {
      throw Error(ErrorKind::resource,
                  {.what = "no SM is left to compute with",
                   .where = kName,
                   .values = fmt::format("{} SMs, {} push", x_.workers, push_ctas_),
                   .advice = "give the rank more SMs, or let warps beside the tiles push: push_ctas = 0"});
    }
    std::stable_partition(plans.begin(), plans.end(), [](const FusedPlan& p) { return p.choice.is_fused; });
    return plans;
  }
  Cost predict(const FusedPlan& plan) {
    const std::vector<std::vector<double>>& arrivals_s = gather_.on_own_node_s(plan.choice);
    const ScheduleTables tables(p_, plan.choice, x_, arrivals_s);
    Schedule schedule = tables.schedule(1);
    schedule.own_in_place = plan.own_in_place;
    walk_in_clusters(schedule.grid, *form_of(plan.choice));
    const std::vector<double>& here_s = arrivals_s[static_cast<size_t>(x_.topology.local(x_.me).value)];
    ComputeEnds ends;
    if (!here_s.empty()) ends = Ctas(schedule, *form_of(plan.choice), p_.k, x_.machine).ends(here_s);
    const double gathered_s = std::max(last_arrival_s(arrivals_s), gather_.last_s(plan.choice));
    return call_cost(schedule, ends, gathered_s, x_.machine);
  }

 private:
  static std::string known_forms() {
    std::string text;
    for (const FormNumbers& form : kFusedForms) {
      text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", form.rows, form.cols);
    }
    return text;
  }

  GatherTimes gather_;
  int32_t push_ctas_;
};

const FormNumbers* form_of(const PlanChoice& choice) {
  for (const FormNumbers& form : kFusedForms) {
    if (form.rows == choice.tile_rows && form.cols == choice.tile_cols) return &form;
  }
  return nullptr;
}

int32_t comm_ctas_of(int32_t push_ctas, const Topology& topology, const FormNumbers& form) {
  if (push_ctas == 0) return 0;
  return static_cast<int32_t>(round_up(push_ctas + (topology.nodes > 1 ? 1 : 0), form.cluster_ctas()));
}

void walk_in_clusters(TileGrid& grid, const FormNumbers& form) {
  grid.raster_rows = static_cast<int32_t>(round_up(grid.raster_rows, form.cluster_row_tiles));
}

PlanOf<FusedPlan> make_fused_plan(const Problem& problem, const PlanContext& context, int32_t push_ctas) {
  return best_plan(FusedPlanner(problem, context, push_ctas));
}

TimedReport simulate(const Problem& problem, const FusedPlan& plan, const TopologyTables& topology,
                     const PlanContext& context, bool keeps_trace) {
  // The rate of the CTAs is the one at which their tiles take what the planner says.
  PlanContext ctas = context;
  const Schedule schedule = ScheduleTables(problem, plan.choice, context).schedule(1);
  ctas.machine.worker_flops = gemm_tile_flops(plan.choice.tile_rows, plan.choice.tile_cols, problem.k) /
                              Ctas(schedule, *form_of(plan.choice), problem.k, context.machine).work_s();
  // One who pushes and one who forwards stand for those of all SMs: the port bounds them together.
  OpSimulation simulation(topology, context.arena);
  simulation.add_call<RankModel>(problem, {plan.choice}, ctas.machine,
                                 [&](Schedule& s) { s.own_in_place = plan.own_in_place; });
  return run_timed(simulation.program(), {.machine = ctas.machine, .keeps_trace = keeps_trace});
}

namespace {

Problem without_gathered(Problem problem) {
  problem.wants_gathered = false;
  return problem;
}

}  // namespace

FusedTables::FusedTables(const Problem& problem, const FusedPlan& plan, const PlanContext& context)
    : problem_(without_gathered(problem)), plan_(plan), tables_(problem_, plan.choice, context) {
  const FormNumbers& form = *form_of(plan.choice);
  const Schedule as_planned = tables_.schedule(0);
  row_order_.assign(as_planned.row_order, as_planned.row_order + as_planned.grid.row_blocks);
  while (row_order_.size() % static_cast<size_t>(form.cluster_row_tiles) != 0) {
    row_order_.push_back(static_cast<int32_t>(row_order_.size()));
  }
  const int64_t tiles = static_cast<int64_t>(row_order_.size()) * as_planned.grid.col_blocks;
  comm_ctas_ = comm_ctas_of(plan.push_ctas, context.topology, form);
  const int32_t least = comm_ctas_ == 0 ? kRankWarps : 1, most = std::max(least, plan.choice.workers);
  ctas_ = static_cast<int32_t>(round_up(comm_ctas_ + std::clamp<int64_t>(tiles, least, most), form.launch_ctas));
  workers_ = ctas_ - comm_ctas_;
  push_workers_ = comm_ctas_ > 0 ? plan.push_ctas : ctas_;
  forward_workers_ = comm_ctas_ > 0 ? 1 : ctas_;
}

Schedule FusedTables::schedule(Epoch epoch) const {
  Schedule schedule = tables_.schedule(epoch);
  schedule.grid.row_blocks = static_cast<int32_t>(row_order_.size());
  schedule.row_order = row_order_.data();
  walk_in_clusters(schedule.grid, *form_of(plan_.choice));
  schedule.workers = workers_;
  schedule.push_workers = push_workers_;
  schedule.forward_workers = forward_workers_;
  schedule.own_in_place = plan_.own_in_place;
  return schedule;
}

}  // namespace tilewire::ag_gemm

template struct tilewire::PlansOf<tilewire::ag_gemm::FusedPlan>;

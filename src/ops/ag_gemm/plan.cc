#include "ops/ag_gemm/plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "ops/ag_gemm/arrivals.h"
#include "ops/ag_gemm/cost.h"
#include "ops/ag_gemm/gather_times.h"
#include "ops/ag_gemm/row_order.h"
#include "planning/planner.h"

namespace tilewire::ag_gemm {

// See planning/planner.h.
class Planner : public PlannerOf<PlanChoice> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "communication alone";

  Planner(const Problem& problem, const PlanContext& context) : PlannerOf(problem, context), gather_(problem, context) {
    check_one_count_a_rank(kName, p_.rows.size(), x_);
  }

  int64_t half_bytes(const PlanChoice&) const { return gather_.half_bytes(); }
  std::string reason_against(const PlanChoice& c) const { return gather_.reason_against(c.chunk_rows); }

  std::vector<PlanChoice> shared_candidates() const {
    std::vector<PlanChoice> choices;
    for (const int64_t rows : doubling_sizes(16, gather_.most_rows())) {
      choices.emplace_back().chunk_rows = rows;
    }
    return choices;
  }
  double shared_cost_s(const PlanChoice& c) { return gather_.last_s(c); }

  // With one push worker: docs/decisions/0019-push-workers-are-given.md.
  //
  // One row block at a time hides most of the way of the others; several together leave fewer workers idle where there
  // are few columns, and weights in cache.
  std::vector<PlanChoice> candidates(const PlanChoice& shared) const {
    std::vector<PlanChoice> choices;
    for (const auto& [rows, cols] : {std::pair{128, 256}, std::pair{64, 256}, std::pair{32, 256}, std::pair{16, 128}}) {
      PlanChoice choice = shared;
      choice.workers = x_.workers;
      choice.tile_rows = rows;
      choice.tile_cols = cols;
      for (const int32_t raster_rows : {1, 4}) {
        choice.raster_rows = raster_rows;
        if (raster_rows > 1 || x_.topology.ranks > 1) choices.push_back(choice);
      }
      choice.is_fused = false;
      choices.push_back(choice);
    }
    // Of equals the first is taken.
    std::stable_partition(choices.begin(), choices.end(), [](const PlanChoice& c) { return c.is_fused; });
    return choices;
  }
  Cost predict(const PlanChoice& choice) {
    const std::vector<std::vector<double>>& arrivals_s = gather_.on_own_node_s(choice);
    const ScheduleTables tables(p_, choice, x_, arrivals_s);
    const auto local = static_cast<size_t>(x_.topology.local(x_.me).value);
    const double gathered_s = std::max(last_arrival_s(arrivals_s), shared_cost_s(choice));
    return ag_gemm::predict(tables.schedule(1), p_.k, arrivals_s[local], gathered_s, x_.machine);
  }

 private:
  GatherTimes gather_;
};

namespace {

int32_t row_blocks_of(const Problem& problem, int32_t tile_rows) {
  const int64_t blocks = div_up(problem.total_rows(), tile_rows);
  if (blocks > INT32_MAX) {
    throw Error(ErrorKind::resource, {.what = "a call has too many rows",
                                      .where = kCallName,
                                      .values = fmt::format("{} rows, {} at a time", problem.total_rows(), tile_rows),
                                      .limit = fmt::format("at most {} such blocks", INT32_MAX),
                                      .advice = "bring fewer rows to a call"});
  }
  return static_cast<int32_t>(blocks);
}

}  // namespace

Buffers buffers_of(const Problem& p, const ArenaLayout& arena) {
  return {.arena = arena, .pitch_bytes = round_up(p.k * size_bytes(p.dtype), kWireUnitBytes)};
}

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context,
                               std::vector<std::vector<double>> arrivals_s)
    : chunks_(problem.rows, choice.chunk_rows, problem.k > 0), arrivals_s_(std::move(arrivals_s)) {
  Schedule& s = schedule_;
  s.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
  s.chunks = chunks_.view();
  s.buffers = buffers_of(problem, context.arena);
  s.columns.weights = static_cast<int32_t>(problem.cols.size());
  s.columns.tile_cols = choice.tile_cols;
  s.columns.has_gather_copy = problem.wants_gathered && problem.k > 0;
  std::copy(problem.cols.begin(), problem.cols.end(), s.columns.cols);
  s.grid = {.rows = problem.total_rows(),
            .tile_rows = choice.tile_rows,
            .row_blocks = row_blocks_of(problem, choice.tile_rows),
            .col_blocks = s.columns.blocks(),
            .raster_rows = choice.raster_rows};
  s.workers = choice.workers;
  s.push_workers = choice.push_workers;
  s.is_fused = choice.is_fused;
  if (arrivals_s_.empty()) arrivals_s_ = expected_arrivals_s(s, s.topology().node(s.me()), context.machine);
  row_order_ = expected_row_order(s, arrivals_s_[static_cast<size_t>(s.topology().local(s.me()).value)]);
}

Schedule ScheduleTables::schedule(Epoch epoch) const {
  Schedule s = schedule_;
  s.frame.epoch = epoch;
  s.chunks = chunks_.view();
  s.row_order = row_order_.data();
  return s;
}

}  // namespace tilewire::ag_gemm

template struct tilewire::PlansOf<tilewire::ag_gemm::PlanChoice>;

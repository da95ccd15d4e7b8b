// Problem -> candidates -> predicted cost -> Plan. Pure host code. A plan is the only source of tile sizes and layouts.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "ops/ag_gemm/problem.h"
#include "ops/ag_gemm/schedule.h"
#include "planning/op_plans.h"
#include "schedule/chunk_tables.h"
#include "schedule/role.h"

namespace tilewire::ag_gemm {

class Planner;     // plan.cc
struct RankModel;  // model.h

// The numbers of a plan, as printed, stored and passed by users. Plans are made by make_plan() and check_plan().
struct PlanChoice {
  using Problem = ag_gemm::Problem;
  using Planner = ag_gemm::Planner;
  using Model = RankModel;

  // Equal on all ranks:
  int64_t chunk_rows = 128;
  // This rank's own:
  bool is_fused = true;
  int32_t tile_rows = 128;
  int32_t tile_cols = 256;
  int32_t raster_rows = 4;  // row blocks walked together
  int32_t workers = 1;
  int32_t push_workers = 1;  // who copy the own chunks to the ranks of the node, dealt out in turn
  Cursors cursors;

  // Throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
  static PlanChoice from_json(const std::string& json);
  std::string shared_text() const;
  CallParts agreed() const;  // of the numbers that are equal on all ranks, by the names of the JSON
  std::string text() const;
};

// Each number once: name, member and range, for reading, writing and checking.
template <class Choice, class Visit>
requires std::is_same_v<std::remove_const_t<Choice>, PlanChoice>
void for_each_field(Choice& c, Visit&& visit) {
  visit("chunk_rows", c.chunk_rows, NumberRange{1, int64_t{1} << 40});
  visit("is_fused", c.is_fused, NumberRange{0, 1});
  visit("tile_rows", c.tile_rows, NumberRange{1, 4096});
  visit("tile_cols", c.tile_cols, NumberRange{1, 4096});
  visit("raster_rows", c.raster_rows, NumberRange{1, 1 << 20});
  visit("workers", c.workers, NumberRange{1, 4096});
  visit("push_workers", c.push_workers, NumberRange{1, 256});
  for_each_cursor_field(c.cursors, visit);
}

using Candidate = CandidateOf<PlanChoice>;
using Plan = PlanOf<PlanChoice>;

std::string to_json(const PlanChoice& choice);

Buffers buffers_of(const Problem& problem, const ArenaLayout& arena);

// The tables behind a rank's Schedule; keep it as long as the schedule is used.
class ScheduleTables {
 public:
  // `arrivals_s`: those of other tables for the same problem, chunk size, push workers and context; empty: they are
  // worked out.
  ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context,
                 std::vector<std::vector<double>> arrivals_s = {});
  // The schedule of call `epoch`.
  Schedule schedule(Epoch epoch) const;
  // See arrivals.h; of the ranks of the own node.
  const std::vector<std::vector<double>>& arrivals_s() const { return arrivals_s_; }

 private:
  ChunkTables chunks_;
  std::vector<std::vector<double>> arrivals_s_;
  std::vector<int32_t> row_order_;
  Schedule schedule_;
};

}  // namespace tilewire::ag_gemm

extern template struct tilewire::PlansOf<tilewire::ag_gemm::PlanChoice>;

// Problem -> candidates -> predicted cost -> Plan. Pure host code. A plan is the only source of chunk sizes and layouts.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "ops/gemm_rs/problem.h"
#include "ops/gemm_rs/schedule.h"
#include "planning/op_plans.h"
#include "reduction/reduction_plan_fields.h"
#include "reduction/reduction_schedule_tables.h"
#include "schedule/role.h"

namespace tilewire::gemm_rs {

class Planner;     // plan.cc
struct RankModel;  // model.h

// The numbers of a plan, as printed, stored and passed by users. Plans are made by make_plan() and check_plan().
struct PlanChoice {
  using Problem = gemm_rs::Problem;
  using Planner = gemm_rs::Planner;
  using Model = RankModel;

  // Equal on all ranks:
  int64_t chunk_rows = 128;
  int64_t chunk_cols = 256;
  int64_t window = 0;       // chunks of an owner that have a slot of each source at a time; 0: all
  int64_t band_blocks = 1;  // blocks of columns that chunks go through together; no number of plans of CPU ranks
  int64_t own_behind = 0;   // rounds by which chunks for the own node come behind others; likewise
  // This rank's own:
  bool is_fused = true;
  int32_t workers = 1;
  int32_t reduce_workers = 1;  // who add up, for other nodes and for the own rows
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
  for_each_shared_reduction_field(c, visit);
  for_each_own_reduction_field(c, visit);
}

using Candidate = CandidateOf<PlanChoice>;
using Plan = PlanOf<PlanChoice>;

std::string to_json(const PlanChoice& choice);

// The tables behind a rank's Schedule; keep it as long as the schedule is used.
class ScheduleTables : public ReductionScheduleTables<Schedule> {
 public:
  // Of a choice that check_choice() has passed.
  ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
};

}  // namespace tilewire::gemm_rs

extern template struct tilewire::PlansOf<tilewire::gemm_rs::PlanChoice>;

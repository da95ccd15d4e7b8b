// Problem -> candidates -> predicted cost -> Plan. Pure host code. A plan is the only source of tile sizes and layouts.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "ops/attention/problem.h"
#include "ops/attention/schedule_tables.h"
#include "planning/op_plans.h"
#include "schedule/role.h"

namespace tilewire::attention {

// Sums of a row are taken over so many keys at a time, cut from the first row of a source on: so that bits do not depend
// on the plan, chunks are whole multiples of it.
inline constexpr int64_t kKeyBlock = 64;

class Planner;     // plan.cc
struct RankModel;  // model.h

// The numbers of a plan, as printed, stored and passed by users. Plans are made by make_plan() and check_plan().
struct PlanChoice {
  using Problem = attention::Problem;
  using Planner = attention::Planner;
  using Model = RankModel;

  // Equal on all ranks:
  bool is_step_major = false;
  int64_t chunk_rows = 512;
  int64_t window = 0;  // slots for pairs, or in step-major order for sources; 0: one for each
  // This rank's own:
  bool is_fused = true;
  int32_t tile_rows = 64;
  int32_t group_pairs = 1;  // pairs that are computed together, at most
  int32_t workers = 1;
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
  visit("is_step_major", c.is_step_major, NumberRange{0, 1});
  visit("chunk_rows", c.chunk_rows, NumberRange{kKeyBlock, int64_t{1} << 40});
  visit("window", c.window, NumberRange{0, 1 << 20});
  visit("is_fused", c.is_fused, NumberRange{0, 1});
  visit("tile_rows", c.tile_rows, NumberRange{1, 4096});
  visit("group_pairs", c.group_pairs, NumberRange{1, 1 << 20});
  visit("workers", c.workers, NumberRange{1, 4096});
  for_each_cursor_field(c.cursors, visit);
}

using Candidate = CandidateOf<PlanChoice>;
using Plan = PlanOf<PlanChoice>;

std::string to_json(const PlanChoice& choice);

}  // namespace tilewire::attention

extern template struct tilewire::PlansOf<tilewire::attention::PlanChoice>;

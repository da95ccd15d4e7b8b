// Problem -> candidates -> predicted cost -> Plan. Pure host code. A plan is the only source of tile sizes and layouts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "ops/moe_dispatch/problem.h"
#include "ops/moe_dispatch/routing_tables.h"
#include "ops/moe_dispatch/schedule.h"
#include "planning/op_plans.h"
#include "schedule/role.h"

namespace tilewire::moe_dispatch {

class Planner;     // plan.cc
struct RankModel;  // model.h

// The numbers of a plan, as printed, stored and passed by users. Plans are made by make_plan() and check_plan().
struct PlanChoice {
  using Problem = moe_dispatch::Problem;
  using Planner = moe_dispatch::Planner;
  using Model = RankModel;

  // Equal on all ranks:
  int64_t block_tokens = 1024;  // tokens of each rank that go in a round
  int64_t window = 2;           // rounds that have room at a time
  int64_t chunk_tokens = 64;    // tokens of a command to another node
  int64_t pieces = 1;           // of a rank's experts; each source says of each when its rows are there
  bool local_first = true;      // rows of the own node are multiplied apart from those of other nodes, and first
  // This rank's own:
  bool is_fused = true;
  int32_t tile_rows = 128;
  int32_t tile_cols = 256;
  int32_t raster_rows = 4;  // row blocks of an expert walked together
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
  visit("block_tokens", c.block_tokens, NumberRange{1, 1 << 30});
  visit("window", c.window, NumberRange{1, 1 << 20});
  visit("chunk_tokens", c.chunk_tokens, NumberRange{1, 1 << 30});
  visit("pieces", c.pieces, NumberRange{1, 4096});
  visit("local_first", c.local_first, NumberRange{0, 1});
  visit("is_fused", c.is_fused, NumberRange{0, 1});
  visit("tile_rows", c.tile_rows, NumberRange{1, 4096});
  visit("tile_cols", c.tile_cols, NumberRange{1, 4096});
  visit("raster_rows", c.raster_rows, NumberRange{1, 1 << 20});
  visit("workers", c.workers, NumberRange{1, 4096});
  for_each_cursor_field(c.cursors, visit);
}

using Candidate = CandidateOf<PlanChoice>;
using Plan = PlanOf<PlanChoice>;

std::string to_json(const PlanChoice& choice);

// By agreed values and the shared part of the choice alone.
Buffers buffers_of(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
// How many rounds there can be: words for so many, and room for their counts.
int64_t most_rounds(const Problem& problem, const PlanChoice& choice, const PlanContext& context);

// The tables behind a rank's Schedule but for those of a routing, which lie in the arena; keep it as long as the schedule
// is used.
class ScheduleTables {
 public:
  // Of a choice that check_choice() has passed.
  ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
  // The schedule of call `epoch`, for as many tokens as the problem is planned for, and without a routing.
  Schedule schedule(Epoch epoch) const;

 private:
  std::unique_ptr<ExpertTables> experts_;
  Schedule schedule_;
};

}  // namespace tilewire::moe_dispatch

extern template struct tilewire::PlansOf<tilewire::moe_dispatch::PlanChoice>;

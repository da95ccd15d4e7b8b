// Problem -> candidates -> predicted cost -> Plan. Pure host code. A plan is the only source of tile sizes and layouts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/ag_gemm/problem.h"
#include "ops/ag_gemm/schedule.h"
#include "schedule/chunk_tables.h"
#include "schedule/machine.h"
#include "schedule/role.h"
#include "schedule/topology.h"

namespace tilewire::ag_gemm {

// The numbers of a plan, as printed, stored and passed by users.
struct PlanChoice {
  // Equal on all ranks:
  int64_t chunk_rows = 128;
  // This rank's own:
  bool is_fused = true;
  int32_t tile_rows = 128;
  int32_t tile_cols = 256;
  int32_t raster_rows = 4;  // row blocks walked together
  int32_t workers = 1;
  Cursors cursors;

  std::string text() const;
};

struct Candidate {
  PlanChoice choice;
  double predicted_s = 0;
  std::string verdict;  // "chosen", or why it lost
};

// What the planner looks at besides the problem.
struct PlanContext {
  Topology topology;
  Rank me;
  ArenaLayout arena;
  Machine machine;
  int32_t workers = 1;
};

struct Plan {
  PlanChoice choice;
  double predicted_s = 0;
  double compute_s = 0;        // alone
  double communication_s = 0;  // alone
  int64_t half_bytes = 0;      // what the call needs of each half of the arena
  std::vector<Candidate> candidates;

  // For people: the choice, the prediction, and why the others lost.
  std::string explain() const;
};

// The best of all candidates. The shared part depends on agreed values only. Throws Error(invalid_argument) for a
// problem that validate() refuses or that has not one row count a rank, and Error(resource) when no chunk size fits the flag area or the wire's fields.
Plan make_plan(const Problem& problem, const PlanContext& context);
// A plan for a choice that the caller gives. Throws as make_plan() does, and Error(invalid_argument) naming the number
// that cannot be.
Plan check_plan(const PlanChoice& choice, const Problem& problem, const PlanContext& context);

// JSON both ways. from_json throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
std::string to_json(const PlanChoice& choice);
PlanChoice plan_from_json(const std::string& json);

// What goes into the call record: equal on all ranks or the call is refused.
std::string agreed_text(const Problem& problem, const PlanChoice& choice);

// The tables behind a rank's Schedule; keep it as long as the schedule is used.
class ScheduleTables {
 public:
  ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
  // The schedule of call `epoch`.
  Schedule schedule(Epoch epoch) const;

 private:
  ChunkTables chunks_;
  std::vector<int32_t> row_order_;
  Schedule schedule_;
};

}  // namespace tilewire::ag_gemm

// Every order of steps of a small program, up to equal states: a depth-first search with hashing of states.
//
// Steps that can never hide a fault by coming early are taken at once instead of being tried in every place: seeing a
// word (the window in which data must stay only grows), publishing one or letting it land, taking a command where the
// network keeps no order, beginning a call. What is tried in every order is when data lands, when work that touches
// memory ends and when the completions of data come.
#pragma once

#include <cstdint>

#include "schedule/simulator/report.h"
#include "schedule/simulator/sim_options.h"
#include "schedule/simulator/sim_program.h"

namespace tilewire {

// Stops at the first state that breaks a rule, or after `max_states` (report.is_complete is then false).
SimReport run_exhaustive(const SimProgram& program, const SimOptions& options, int64_t max_states);

}  // namespace tilewire

// The same walk with a clock and a cost model in place of arithmetic: a discrete-event simulation that predicts the
// time of a call and gives the timeline that a real run would.
//
// Shared and limited by rate: each rank's egress to and ingress from its local peers, each NIC's egress and ingress,
// each proxy's commands. An agent does one piece of work after the other; what it reads, computes and writes within its
// rank adds up, and what it hands to peers leaves behind that. A transfer holds both ends of its link from its begin
// on, in order of their begins.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "schedule/machine.h"
#include "schedule/simulator/report.h"
#include "schedule/simulator/sim_options.h"
#include "schedule/simulator/sim_program.h"
#include "schedule/trace_event.h"

namespace tilewire {

struct CostModel {
  Machine machine{};
  int32_t nics = 1;                    // of each rank; they share machine.network_bytes_per_s, a chunk takes one
  double worker_copy_bytes_per_s = 0;  // what one agent copies to a peer at most; 0 = as much as the link takes
  bool keeps_trace = false;
  bool checks_rules = false;  // memory and tiles too, at some cost of the simulation's own time
};

struct TimedReport {
  SimReport rules;                      // a standstill is told here even when checks_rules is off
  double seconds = 0;                   // from the first rank's begin to the last rank's end
  std::vector<double> rank_end_s;       // of the last call, by rank
  std::array<int64_t, 4> link_bytes{};  // by TraceLink
  double compute_busy_s = 0;            // sum over all agents that make tiles
  std::vector<TraceEvent> trace;        // by end
};

TimedReport run_timed(const SimProgram& program, const CostModel& costs);

}  // namespace tilewire

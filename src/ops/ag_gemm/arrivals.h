// When the chunks of a call are expected: the roles that move them walked on a clock (schedule/transfer_clock.h).
#pragma once

#include <vector>

#include "ops/ag_gemm/schedule.h"
#include "schedule/machine.h"

namespace tilewire::ag_gemm {

// What the clock asks of this op.
inline int64_t transfer_bytes(const Schedule& s, const CopyWork& w) { return s.bytes(w.chunk); }
inline int64_t transfer_bytes(const Schedule&, const SendWork& w) { return int64_t{w.command.units} * kWireUnitBytes; }
inline Schedule schedule_of(const Schedule& s, Rank rank) {
  Schedule other = s;
  other.frame.me = rank;
  other.own_in_user = s.own_in_user && rank == s.me();
  return other;
}

// Seconds after the start of the call, [local rank][global number of the chunk]: when a role of that rank of `node` can
// use the chunk. Takes push (all its workers), send and forward as they are; each direction of a port carries one
// transfer after the other, also where several ranks send to one. Other ranks are taken to have as many push workers. Of
// `s` the rank and the order of row blocks are not looked at.
std::vector<std::vector<double>> expected_arrivals_s(const Schedule& s, Node node, const Machine& machine);

// When the last rank of the node has all chunks.
double last_arrival_s(const std::vector<std::vector<double>>& arrivals_s);

}  // namespace tilewire::ag_gemm

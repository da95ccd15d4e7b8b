// The bytes of a matrix that is summed over ranks, for a call's report.
#pragma once

#include <tilewire/call.h>

#include "schedule/reduction_schedule.h"

namespace tilewire {

// Copied are partial sums that stay here and node sums before they are sent; local peers get partial sums; the network
// counts what the proxy was given.
inline void count_sums(const ReductionSchedule& s, CallReport& report) {
  for (int32_t i = 0; i < s.map.total_chunks(); ++i) {
    const OwnedChunk c = s.map.at(i);
    (s.taker(c.owner) == s.me() ? report.copy_bytes : report.node_bytes) += s.partial_bytes(c);
  }
  for (int32_t i = 0; i < s.map.rail_chunks; ++i) {
    const int64_t bytes = s.sum_bytes(s.map.at(s.map.rail_order[i]));
    report.copy_bytes += bytes;
    report.network_bytes += bytes;
  }
}

}  // namespace tilewire

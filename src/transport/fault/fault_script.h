// What the fault transport does, as one text: faults joined by ';', each "name" or "name:key=value,key=value".
//
//   stall:after=10,ms=50       once 10 requests were taken: takes nothing and reports nothing for 50 ms; for ever without
//                              ms
//   full:after=10,times=100    once 10 requests were taken: refuses the next 100 posts, as a full queue does
//   drop:peer=2,after=5        requests to rank 2, after the first 5 to it: never sent, never completed
//   withhold:peer=2,after=5    the same, but sent: only the completions are kept back; all peers without peer
//   fail:nth=3,status=7        the 3rd request (to peer=P, if given) is not sent and fails with that status
//   fail:data=20               the same of requests with data alone, which never are the last word of a call
//   deny:nth=3,status=7        the 3rd completion (of a request to peer=P, if given) is told as a failure with that status:
//                              the data is there, as where an acknowledgement is lost
//   report:peer=2,after=10     once 10 requests were taken: a write of the transport's own to rank 2 fails, with status=7
//                              if that is given
//   tear:nth=3                 of the 3rd request with data (to peer=P, if given) half the bytes are sent, and it completes
//   delay:us=5000,peer=2       requests without data are sent that much later; what must stay behind them waits too
//   die:after=100              once 100 requests were taken: post or poll throws
//   die:step=100               the 100th call of post or poll throws; how many polls there are is a matter of time
//
// Counts begin at 1; after defaults to 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace tilewire {

enum class FaultKind : uint8_t { stall, full, drop, withhold, fail, deny, report, tear, delay, die };

struct Fault {
  FaultKind kind = FaultKind::stall;
  std::optional<Rank> peer;  // nothing: any
  uint64_t after = 0;
  uint64_t count = 0;                                // full: times; fail, deny, tear: nth; die: step
  bool is_of_data = false;                           // fail: count is of requests with data
  int32_t status = 1;                                // fail, deny, report
  std::optional<std::chrono::nanoseconds> duration;  // stall, delay
};

// Empty text gives no faults. Throws Error(invalid_argument) that names the part of the text, what is wrong with it and
// what is known.
std::vector<Fault> parse_fault_script(std::string_view text);

}  // namespace tilewire

#include "transport/arrival.h"

#include <fmt/format.h>
#include <tilewire/error.h>

namespace tilewire {

const char* to_string(ArrivalStrategy strategy) {
  switch (strategy) {
    case ArrivalStrategy::ordered: return "ordered";
    case ArrivalStrategy::counted: return "counted";
    case ArrivalStrategy::after_completion: return "after completion";
  }
  return "unknown";
}

ArrivalChoice choose_arrival(const Caps& caps) {
  if (caps.max_outstanding == 0) {
    throw Error(ErrorKind::unavailable, {.what = "a transport that takes no request cannot be used",
                                         .values = fmt::format("transport = {}, max_outstanding = 0", caps.name)});
  }
  if (caps.ordered_writes && caps.value_writes) {
    return {ArrivalStrategy::ordered,
            fmt::format("{} keeps the order of writes: the flag goes behind its data", caps.name)};
  }
  if (caps.write_with_immediate) {
    return {ArrivalStrategy::counted,
            fmt::format("{} keeps no order of writes, but a write can carry an immediate", caps.name)};
  }
  if (caps.value_writes) {
    return {ArrivalStrategy::after_completion,
            fmt::format("{} has neither ordered writes nor immediates: flags wait for completions", caps.name)};
  }
  throw Error(ErrorKind::unavailable,
              {.what = "a transport cannot signal arrivals",
               .values = fmt::format("transport = {}, ordered_writes = {}, value_writes = 0, write_with_immediate = 0",
                                     caps.name, caps.ordered_writes ? 1 : 0),
               .limit = "needs value_writes or write_with_immediate"});
}

}  // namespace tilewire

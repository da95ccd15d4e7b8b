// One piece of work of one role, as a timeline shows it. The executor records these from a clock and the simulator from
// its cost model, so that a real and a predicted run are drawn by the same code.
//
//   |<---- t_wait_ns ---->|<------------ work ------------>|
//                     t_begin_ns                        t_end_ns
//
// In JSON and in Python each field has the same name; `link` is its text.
#pragma once

#include <cstdint>

namespace tilewire {

// What the bytes of an event travelled over.
enum class TraceLink : uint8_t {
  none,     // nothing moved
  copy,     // within the rank's own memory
  node,     // to or from a rank of the same node
  network,  // to or from a rank of another node
};

constexpr const char* to_string(TraceLink link) {
  switch (link) {
    case TraceLink::none: return "none";
    case TraceLink::copy: return "copy";
    case TraceLink::node: return "node";
    case TraceLink::network: return "network";
  }
  return "unknown";
}

// `role` and `name` are never freed: they point at string literals.
struct TraceEvent {
  int32_t rank = 0;
  const char* role = "";   // "compute", "push", "send", "relay", "forward", ...
  int32_t worker = 0;      // which of the role's threads or CTAs, from 0
  const char* name = "";   // what was done: "tile", "chunk", ...
  int64_t work = -1;       // number of the tile, or of the chunk within its source; -1: neither
  int32_t source = -1;     // the rank whose data it is; -1: none
  int64_t t_begin_ns = 0;  // the work begins (the wait ends)
  int64_t t_wait_ns = 0;   // how long it waited before
  int64_t t_end_ns = 0;    // done and published
  int64_t bytes = 0;       // payload moved, 0 for compute
  TraceLink link = TraceLink::none;
};

}  // namespace tilewire

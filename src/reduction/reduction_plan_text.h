// The texts of plans of ops that sum a matrix over ranks: of the numbers that all of them have. Choice is the op's.
#pragma once

#include <fmt/format.h>

#include <string>

#include "planning/plan_parts.h"

namespace tilewire {

template <class Choice>
std::string chunks_text(const Choice& c) {
  return fmt::format("chunks of {} x {}, {}", c.chunk_rows, c.chunk_cols,
                     c.window == 0 ? "a slot for each" : fmt::format("a window of {}", c.window));
}

// With the names of the JSON.
template <class Choice>
CallParts agreed_chunks(const Choice& c) {
  return {{fmt::format("chunk_rows = {}", c.chunk_rows), kPlanAdvice},
          {fmt::format("chunk_cols = {}", c.chunk_cols), kPlanAdvice},
          {fmt::format("window = {}", c.window), kPlanAdvice}};
}

// `shared` is the text of the shared part.
template <class Choice>
std::string own_text(const Choice& c, const char* unfused, const std::string& shared) {
  return fmt::format("{}, {}, {} worker{}, {} reduce worker{}, waits {} pieces ahead, publishes {} pieces behind",
                     c.is_fused ? "fused" : unfused, shared, c.workers, c.workers == 1 ? "" : "s", c.reduce_workers,
                     c.reduce_workers == 1 ? "" : "s", c.cursors.load_ahead, c.cursors.publish_behind);
}

}  // namespace tilewire

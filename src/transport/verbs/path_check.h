// The self-test of paths between ranks, once all are connected: each side writes a pattern with an immediate behind it,
// and waits for that of the other one.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "transport/event_list.h"

namespace tilewire::verbs {

// Byte `i` of the pattern that the queue pair `from_number` writes to the queue pair `to_number`.
std::byte probe_byte(size_t i, uint32_t from_number, uint32_t to_number);

// What is known of the paths to one peer.
struct PathProof {
  Rank peer;
  size_t paths = 0;
  size_t arrived = 0;            // immediates of the peer that are here
  bool is_acknowledged = false;  // own writes have completed
  bool is_content_right = false;

  bool is_proved() const { return arrived == paths && is_acknowledged && is_content_right; }
};

struct PathCheck {
  std::function<void()> step;                      // moves things on; what comes is in `events`
  std::function<std::vector<PathProof>()> proofs;  // as they are now, but for `arrived`
  std::function<std::string(int32_t)> describe_status;
  std::string port{};
  std::string where{};
};

// Until all paths are proved. Throws Error(unavailable) for a write that failed, Error(deadline) with each path that
// carries nothing, and what `limit.poll` throws, which comes first: a rank that has died is the cause of all else.
void check_all_paths(const PathCheck& check, EventList& events, const StepLimit& limit);

}  // namespace tilewire::verbs

#include "transport/verbs/path_check.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <map>
#include <thread>

namespace tilewire::verbs {
namespace {

constexpr std::chrono::microseconds kNap{50};  // all ranks of a host may wait for one that is late

[[noreturn]] void fail_write(const PathCheck& check, const Event& event) {
  throw Error(ErrorKind::unavailable,
              {.what = fmt::format("the first write to rank {} failed", event.peer.value),
               .where = check.where,
               .values = fmt::format("port {}, {}", check.port, check.describe_status(event.status)),
               .advice = "check that the hosts reach each other over these ports (ping, rping), and their MTU"});
}

// A peer that has died is told by the control connection, if not yet.
void await_word_of_death(const StepLimit& limit) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (limit.poll && std::chrono::steady_clock::now() < end) {
    limit.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

[[noreturn]] void fail_unproved(const PathCheck& check, const std::vector<PathProof>& proofs) {
  std::string text;
  for (const PathProof& proof : proofs) {
    if (proof.is_acknowledged && proof.arrived == proof.paths) continue;
    text += fmt::format("{}rank {}: {} of {} probes came, own ones {}", text.empty() ? "" : "; ", proof.peer.value,
                        proof.arrived, proof.paths, proof.is_acknowledged ? "acknowledged" : "not acknowledged");
  }
  throw Error(ErrorKind::deadline, {.what = "paths to other ranks carry nothing",
                                    .where = check.where,
                                    .values = text.empty() ? "probes came with wrong content" : text,
                                    .limit = fmt::format("port {}", check.port),
                                    .advice = "check that the hosts reach each other over these ports, and their MTU"});
}

}  // namespace

std::byte probe_byte(size_t i, uint32_t from_number, uint32_t to_number) {
  return static_cast<std::byte>(1 + (i * 31 + uint64_t{from_number} * 7 + uint64_t{to_number} * 13) % 255);
}

void check_all_paths(const PathCheck& check, EventList& events, const StepLimit& limit) {
  const auto end = std::chrono::steady_clock::now() + limit.deadline;
  std::map<int32_t, size_t> arrived;
  for (;;) {
    std::vector<PathProof> proofs = check.proofs();
    for (PathProof& proof : proofs) proof.arrived = arrived[proof.peer.value];
    if (std::all_of(proofs.begin(), proofs.end(), [](const PathProof& proof) { return proof.is_proved(); })) return;
    if (limit.poll) limit.poll();
    check.step();
    const bool has_moved = !events.is_empty();
    for (const Event& event : events.waiting()) {
      if (event.kind == EventKind::failed || event.kind == EventKind::own_failed) {
        await_word_of_death(limit);
        fail_write(check, event);
      }
      if (event.kind == EventKind::arrived) ++arrived[event.peer.value];
    }
    events.clear();
    if (std::chrono::steady_clock::now() > end) fail_unproved(check, proofs);
    if (!has_moved) std::this_thread::sleep_for(kNap);
  }
}

}  // namespace tilewire::verbs

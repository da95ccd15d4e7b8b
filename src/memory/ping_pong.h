// Tests and benches only: two sides that publish to each other in turn, each in the other's arena.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/ids.h"
#include "memory/wait.h"
#include "memory/words.h"

namespace tilewire {

struct PingPong {
  ArenaLayout layout;
  std::byte* mine = nullptr;
  std::byte* theirs = nullptr;
  Rank me;  // the other is 1 - me
  WaitOptions options;
  // Before each publish the side loses some time, different in each round, to meet the other at every step of its wait.
  int64_t jitter_loops = 0;
};

struct PingPongResult {
  WaitResult last = WaitResult::ready;
  std::chrono::nanoseconds longest_wait{0};
  int64_t sleeps = 0;
};

// Plays the rounds from `first` to `last`; those before `first` were played. Rank 0 begins each round. Ends early when a
// wait is not ready or takes longer than `patience`.
inline PingPongResult play(const PingPong& side, Epoch first, Epoch last, std::chrono::nanoseconds patience) {
  const Rank other{1 - side.me.value};
  const uint32_t word_to_them = side.layout.flags.begun(side.me);
  const uint32_t word_to_me = side.layout.flags.begun(other);
  HostWaiter waiter(side.mine, side.options);
  PingPongResult result;
  uint32_t jitter = 12345;
  const auto await = [&](Epoch e) {
    result.last = waiter.wait([&] { return has_reached(side.mine, side.layout, word_to_me, e); },
                              [&] { return "round " + std::to_string(e); });
    if (waiter.last_waited() > result.longest_wait) result.longest_wait = waiter.last_waited();
    return result.last == WaitResult::ready && result.longest_wait <= patience;
  };
  for (Epoch e = first; e <= last; ++e) {
    if (side.me.value == 1 && !await(e)) break;
    jitter = jitter * 1664525u + 1013904223u;
    const int64_t loops = side.jitter_loops == 0 ? 0 : static_cast<int64_t>(jitter >> 8) % side.jitter_loops;
    for (int64_t i = 0; i < loops; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    publish_word(side.theirs, side.layout, word_to_them, e);
    if (side.me.value == 0 && !await(e)) break;
  }
  result.sleeps = waiter.sleeps();
  return result;
}

}  // namespace tilewire

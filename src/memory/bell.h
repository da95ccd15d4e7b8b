// The bell wakes threads that sleep until some word changes. It may lie in memory that processes share.
//
// Why no wake-up is lost. A writer stores the word, then loads `sleepers`. A sleeper raises `sleepers`, then looks at
// the word once more, then sleeps unless the bell has rung since before that look. All four are sequentially
// consistent, so either the writer sees the sleeper (and rings) or the sleeper sees the word. With weaker orders both
// may miss: the store of x86, too, is delayed past a later load. Therefore: what a sleeper looks at is stored and
// loaded with memory_order_seq_cst. On x86 and 64-bit Arm the load costs no more than an acquire.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "schedule/arena_layout.h"

namespace tilewire {

// A view of two words; it owns nothing.
struct Bell {
  uint32_t* rung = nullptr;      // futex word
  uint32_t* sleepers = nullptr;  // how many threads sleep, or are about to
};

// The bell of a rank, in its arena.
inline Bell arena_bell(std::byte* base) {
  return {reinterpret_cast<uint32_t*>(base + ControlPage::kBell),
          reinterpret_cast<uint32_t*>(base + ControlPage::kSleepers)};
}

// The slow half of wake_sleepers: rings whether or not anybody sleeps. A system call.
void ring(Bell bell) noexcept;

// Wakes all sleepers of the bell, in this process and others. Call it after a seq_cst store of the word they look at.
// Costs one load when nobody sleeps.
inline void wake_sleepers(Bell bell) noexcept {
  if (std::atomic_ref<uint32_t>(*bell.sleepers).load(std::memory_order_seq_cst) != 0) [[unlikely]] {
    ring(bell);
  }
}

// The bell of words that only this process looks at, such as the ends of a ring.
class LocalBell {
 public:
  LocalBell() = default;
  LocalBell(const LocalBell&) = delete;
  LocalBell& operator=(const LocalBell&) = delete;

  Bell view() { return {&rung_, &sleepers_}; }
  void wake() noexcept { wake_sleepers(view()); }

 private:
  alignas(64) uint32_t rung_ = 0;
  alignas(64) uint32_t sleepers_ = 0;
};

// The steps of a sleeper, for HostWaiter: announce, look at the word, then sleep(); leave again in any case.
class Sleeper {
 public:
  explicit Sleeper(Bell bell) noexcept : bell_(bell) {
    std::atomic_ref<uint32_t>(*bell_.sleepers).fetch_add(1, std::memory_order_seq_cst);
    seen_ = std::atomic_ref<uint32_t>(*bell_.rung).load(std::memory_order_seq_cst);
  }
  ~Sleeper() { std::atomic_ref<uint32_t>(*bell_.sleepers).fetch_sub(1, std::memory_order_seq_cst); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  // Returns when the bell has rung since construction, after `limit`, or for no reason.
  void sleep(std::chrono::nanoseconds limit) noexcept;

 private:
  Bell bell_;
  uint32_t seen_ = 0;
};

}  // namespace tilewire

// What the warps of a wire's CTA tell each other, in shared memory: the entries that have been fetched and are not yet
// where they belong. Entries have numbers from the first one of the ring on.
#pragma once

#include "device/ptx/qualifier.cuh"
#include "schedule/wire_ring.h"

namespace tilewire {

class WireInbox {
 public:
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kCopiers = 12;

  struct Memory {
    uint64_t entries[kSlots][4];
    uint32_t copied[kSlots];    // pieces of the entry that are there
    uint32_t passed[kCopiers];  // entries that each copier is behind
    uint32_t fetched, stored, has_ended, is_over;
  };

  TILEWIRE_DEVICE explicit WireInbox(void* base) : inbox_(static_cast<volatile Memory*>(base)) {}
  // By one thread, before a barrier of all.
  TILEWIRE_DEVICE void init(uint64_t entries) const {
    const auto first = static_cast<uint32_t>(entries);
    for (uint32_t i = 0; i < kSlots; ++i) inbox_->copied[i] = 0;
    for (uint32_t i = 0; i < kCopiers; ++i) inbox_->passed[i] = first;
    inbox_->fetched = first;
    inbox_->stored = first;
    inbox_->has_ended = 0;
    inbox_->is_over = 0;
  }

  // The fetching warp, which is at entry `fetched`; all lanes together.
  TILEWIRE_DEVICE uint32_t room(uint64_t fetched) const {
    const uint32_t lane = threadIdx.x % 32, now = static_cast<uint32_t>(fetched);
    const uint32_t behind = now - (lane < kCopiers ? inbox_->passed[lane] : inbox_->stored);
    return kSlots - __reduce_max_sync(0xffffffff, behind);
  }
  TILEWIRE_DEVICE void put(uint64_t number, uint32_t word, uint64_t value) const {
    inbox_->entries[number % kSlots][word] = value;
  }
  TILEWIRE_DEVICE void set_fetched(uint64_t entries) const {
    __threadfence_block();
    inbox_->fetched = static_cast<uint32_t>(entries);
  }
  TILEWIRE_DEVICE void end() const { inbox_->has_ended = 1; }

  // The others. False: entry `number` will not come.
  TILEWIRE_DEVICE bool wait(uint64_t number) const {
    while (!has(number)) {
      if (inbox_->has_ended != 0) return has(number);
      __nanosleep(kPauseNs);
    }
    return true;
  }
  // Whether entry `number` is there, if those before it are.
  TILEWIRE_DEVICE bool has(uint64_t number) const {
    const bool is_there = inbox_->fetched != static_cast<uint32_t>(number);
    __threadfence_block();
    return is_there;
  }
  TILEWIRE_DEVICE WireMove get(uint64_t number) const {
    WireEntry entry;
    for (int32_t i = 0; i < 4; ++i) entry.words[i] = inbox_->entries[number % kSlots][i];
    return unpack(entry);
  }

  // A copier, when a piece of the entry is where it belongs, and when it is through with the entry.
  TILEWIRE_DEVICE void add_copied(uint64_t number) const {
    __threadfence_block();
    atomicAdd(const_cast<uint32_t*>(&inbox_->copied[number % kSlots]), 1);
  }
  TILEWIRE_DEVICE void pass(uint32_t copier, uint64_t number) const {
    inbox_->passed[copier] = static_cast<uint32_t>(number) + 1;
  }

  // The publishing thread.
  TILEWIRE_DEVICE bool is_copied(uint64_t number, uint32_t pieces) const {
    const bool is_there = inbox_->copied[number % kSlots] == pieces;
    __threadfence_block();
    return is_there;
  }
  TILEWIRE_DEVICE void set_stored(uint64_t entries) const {
    __threadfence_block();
    inbox_->stored = static_cast<uint32_t>(entries);
  }
  // The slot may be taken again when it is stored.
  TILEWIRE_DEVICE void clear_copied(uint64_t number) const { inbox_->copied[number % kSlots] = 0; }
  TILEWIRE_DEVICE void set_over() const { inbox_->is_over = 1; }

  // Who tells the host: entries that are stored behind the first `number`, and whether that was the last.
  TILEWIRE_DEVICE uint32_t stored_behind(uint64_t number) const {
    const uint32_t more = inbox_->stored - static_cast<uint32_t>(number);
    __threadfence_block();
    return more;
  }
  TILEWIRE_DEVICE bool is_over() const {
    const bool is_over = inbox_->is_over != 0;
    __threadfence_block();
    return is_over;
  }

 private:
  static constexpr uint32_t kPauseNs = 100;

  volatile Memory* inbox_;
};

}  // namespace tilewire

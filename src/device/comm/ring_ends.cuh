// A kernel's ends of the rings that it shares with its proxy: commands out, arrivals in. The protocol is that of
// transport/command_queue.h.
#pragma once

#include "device/comm/call_view.cuh"

namespace tilewire {

// Puts commands into a ring: one thread or warp, the only one that does in this call. Its place lasts from call to call.
class CommandPoster {
 public:
  TILEWIRE_DEVICE CommandPoster(const CallSpace& space, Ring ring)
      : space_(space),
        memory_(space.view().rings[static_cast<int32_t>(ring)]),
        place_(space.view().state->posted + static_cast<int32_t>(ring)),
        tail_word_(kRingTailWord + static_cast<uint64_t>(ring)),
        posted_(*place_) {}

  // What the thread wrote or acquired before is visible to whoever reads the command. Waits for room; false: given up,
  // as the waiter says.
  TILEWIRE_DEVICE bool post(Waiter& waiter, Command command) {
    if (posted_ >= room_until_ && !wait_room(waiter, 1)) return false;
    put(posted_, command);
    *place_ = ++posted_;
    return true;
  }

  // The same by a whole warp: of the first `count` lanes each has a command, in their order. False in all lanes: given
  // up.
  TILEWIRE_DEVICE bool post_of_lanes(Waiter& waiter, uint32_t count, const Command& command) {
    const uint32_t lane = threadIdx.x % 32;
    if (posted_ + count > room_until_) {
      if (lane == 0) wait_room(waiter, count);
      if (!all_here(waiter)) return false;
      room_until_ = __shfl_sync(0xffffffff, room_until_, 0);
    }
    if (lane < count) put(posted_ + lane, command);
    posted_ += count;
    if (lane == 0) *place_ = posted_;
    return true;
  }

 private:
  TILEWIRE_DEVICE void put(uint64_t number, Command command) const {
    if (command.kind == CommandKind::call_end) command.epoch = space_.epoch();
    const PackedCommand packed = pack(command);
    const uint64_t lap = memory_.lap_bit(number);
    ptx::fence_sys();
    ptx::store_pair_relaxed_sys(&memory_.entry(number).first, packed.first | lap, packed.second | lap);
  }
  // For `count` more; fewer than the ring has entries.
  TILEWIRE_DEVICE bool wait_room(Waiter& waiter, uint32_t count) {
    const uint64_t end = posted_ + count;
    const uint64_t least = end > memory_.entry_count ? end - memory_.entry_count : 0;
    if (!waiter.wait(&memory_.header->tail, tail_word_, least)) return false;
    room_until_ = ptx::load_acquire_sys(&memory_.header->tail) + memory_.entry_count;
    return true;
  }

  const CallSpace& space_;
  const RingMemory& memory_;
  uint64_t* place_;
  uint64_t tail_word_;
  uint64_t posted_;
  uint64_t room_until_ = 0;
};

// Takes arrivals from the ring: one warp, each lane an entry.
class ArrivalTaker {
 public:
  TILEWIRE_DEVICE explicit ArrivalTaker(const CallSpace& space)
      : memory_(space.view().arrivals), place_(&space.view().state->taken), taken_(*place_) {}

  // Whether the next entry is there. One lane looks.
  TILEWIRE_DEVICE bool has_next() const {
    const bool is_looking = threadIdx.x % 32 == 0;
    const uint64_t lap = memory_.lap_bit(taken_);
    return __any_sync(0xffffffff,
                      is_looking && (ptx::load_relaxed_sys(&memory_.entry(taken_).second) & kLapBit) == lap);
  }
  // How many of the next entries are there; lane i < that many has the i-th, whose number is `slot`.
  TILEWIRE_DEVICE int32_t take(Immediate& arrival, uint64_t& slot) {
    slot = taken_ + threadIdx.x % 32;
    PackedCommand& entry = memory_.entry(slot);
    const uint64_t lap = memory_.lap_bit(slot);
    const uint64_t second = ptx::load_acquire_sys(&entry.second);
    const uint64_t first = ptx::load_acquire_sys(&entry.first);
    const bool is_there = (second & kLapBit) == lap && (first & kLapBit) == lap;
    arrival = {static_cast<uint32_t>(first & ~kLapBit), second & ~kLapBit};
    const uint32_t missing = ~__ballot_sync(0xffffffff, is_there);
    return missing == 0 ? 32 : __ffs(static_cast<int32_t>(missing)) - 1;
  }
  // Gives `count` entries back, when all lanes have read theirs.
  TILEWIRE_DEVICE void release(int32_t count) {
    __syncwarp();
    taken_ += static_cast<uint64_t>(count);
    if (threadIdx.x % 32 != 0) return;
    *place_ = taken_;
    ptx::store_release_sys(&memory_.header->tail, taken_);
  }

 private:
  const RingMemory& memory_;
  uint64_t* place_;
  uint64_t taken_;
};

}  // namespace tilewire

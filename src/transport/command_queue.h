// The command queue: how a role (a GPU warp, or a thread of a CPU rank) tells its proxy what to send. One producer and
// one consumer a ring; 16-byte commands; bit 63 of both halves is the lap parity, which makes it the valid bit: the
// consumer takes an entry once both halves show the parity of its lap, so it never reads a head, and an entry written
// half by half, in either order, is never accepted torn. The producer reads the consumer's tail only when the ring
// looks full.
//
// Publish and consume: what the producer wrote before try_post() is visible to whoever read the command.
//
// Named pair: CommandRing owns the memory on the host; CommandProducer is the handle that a producer holds. A GPU
// producer works over the same RingMemory (schedule/ring_memory.h), see device/comm/ring_ends.cuh.
//
// Thread-safety: a CommandProducer belongs to one thread at a time, a CommandConsumer to one thread at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "schedule/ring_memory.h"

namespace tilewire {

class CommandProducer {
 public:
  explicit CommandProducer(RingMemory memory) : memory_(memory) {}

  // False when the ring is full; waiting is up to the caller. The command must fit its fields (see fits()).
  bool try_post(const Command& command) { return try_post(pack(command)); }

  bool try_post(PackedCommand packed) {
    if (head_ - known_tail_ >= memory_.entry_count && !refresh_tail()) return false;
    const uint64_t lap = memory_.lap_bit(head_);
    PackedCommand& entry = memory_.entry(head_);
    std::atomic_ref(entry.first).store(packed.first | lap, std::memory_order_release);
    std::atomic_ref(entry.second).store(packed.second | lap, std::memory_order_release);
    ++head_;
    return true;
  }

  uint64_t posted() const { return head_; }

 private:
  bool refresh_tail() {
    known_tail_ = std::atomic_ref(memory_.header->tail).load(std::memory_order_acquire);
    return head_ - known_tail_ < memory_.entry_count;
  }

  RingMemory memory_;
  uint64_t head_ = 0;        // commands posted
  uint64_t known_tail_ = 0;  // what the tail was when last read
};

class CommandConsumer {
 public:
  explicit CommandConsumer(RingMemory memory) : memory_(memory) {}

  // Takes up to out.size() commands, in order. Their entries go back to the producer with release().
  size_t take(std::span<PackedCommand> out) {
    size_t taken = 0;
    while (taken < out.size() && try_take(out[taken])) ++taken;
    return taken;
  }

  bool try_take(PackedCommand& out) {
    const uint64_t lap = memory_.lap_bit(taken_);
    PackedCommand& entry = memory_.entry(taken_);
    const uint64_t second = std::atomic_ref(entry.second).load(std::memory_order_acquire);
    if ((second & kLapBit) != lap) return false;
    const uint64_t first = std::atomic_ref(entry.first).load(std::memory_order_acquire);
    if ((first & kLapBit) != lap) return false;
    out = {first & ~kLapBit, second & ~kLapBit};
    ++taken_;
    return true;
  }

  // Gives the entries of everything taken so far back to the producer.
  void release() {
    if (released_ == taken_) return;
    released_ = taken_;
    std::atomic_ref(memory_.header->tail).store(taken_, std::memory_order_release);
  }

  uint64_t taken() const { return taken_; }

 private:
  RingMemory memory_;
  uint64_t taken_ = 0;
  uint64_t released_ = 0;
};

// Owns one ring. Producer and consumer handles must not outlive it.
class CommandRing {
 public:
  // Both throw Error(invalid_argument) unless entry_count is a power of two in 1..2^20.
  explicit CommandRing(uint32_t entry_count);
  // In RingMemory::bytes(entry_count) of zeros, aligned as RingHeader is: memory that a GPU reaches too.
  CommandRing(uint32_t entry_count, std::shared_ptr<void> storage);

  const RingMemory& memory() const { return memory_; }

 private:
  std::shared_ptr<void> storage_;
  RingMemory memory_;
};

}  // namespace tilewire

// Where the receiver's proxy puts an arrival that came as an immediate (strategy *counted*).
//
// On CPU ranks the proxy writes the flag word itself: WordSink. It has no plain store into GPU memory, so there the
// arrival goes into an arrival ring in pinned memory, which the relay role drains to release the flags: ArrivalRing
// with RingSink on the proxy's side and ArrivalDrain on the relay's.
//
// Thread-safety: a sink belongs to the proxy thread, an ArrivalDrain to one relay thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "schedule/arena_layout.h"
#include "transport/command_queue.h"

namespace tilewire {

// `word` of the own flag area has reached `epoch`, and its data is here.
struct Arrival {
  uint32_t word = 0;
  Epoch epoch = 0;

  friend bool operator==(const Arrival&, const Arrival&) = default;
};

class ArrivalSink {
 public:
  virtual ~ArrivalSink() = default;
  // Everything the caller has seen of the arrival's data is visible to whoever learns of the arrival. False when there
  // is no room: the proxy keeps the arrival and tries again.
  virtual bool deliver(const Arrival& arrival) = 0;
};

// Raises the flag word in the arena at `base` and rings the rank's bell. Arrivals may come in any order of epochs.
class WordSink final : public ArrivalSink {
 public:
  WordSink(std::byte* base, const ArenaLayout& layout) : base_(base), layout_(layout) {}
  bool deliver(const Arrival& arrival) override;

 private:
  std::byte* base_;
  ArenaLayout layout_;
};

// The same memory layout and the same lap parity as a command ring; an entry is {word, epoch}.
class RingSink final : public ArrivalSink {
 public:
  explicit RingSink(RingMemory memory) : producer_(memory) {}
  bool deliver(const Arrival& arrival) override {
    return producer_.try_post(PackedCommand{arrival.word, arrival.epoch});
  }

 private:
  CommandProducer producer_;
};

class ArrivalDrain {
 public:
  explicit ArrivalDrain(RingMemory memory) : consumer_(memory) {}

  // Takes up to out.size() arrivals and gives their entries back.
  size_t drain(std::span<Arrival> out);

 private:
  CommandConsumer consumer_;
};

// Owns an arrival ring. Sink and drain must not outlive it.
class ArrivalRing {
 public:
  // Throws Error(invalid_argument) unless entry_count is a power of two in 1..2^20.
  explicit ArrivalRing(uint32_t entry_count) : ArrivalRing(CommandRing(entry_count)) {}
  explicit ArrivalRing(CommandRing ring) : ring_(std::move(ring)), sink_(ring_.memory()) {}

  ArrivalSink& sink() { return sink_; }
  ArrivalDrain drain_side() const { return ArrivalDrain(ring_.memory()); }

 private:
  CommandRing ring_;
  RingSink sink_;
};

}  // namespace tilewire

// Immediates need something at the receiver: an entry of its receive queue, or one of its completion queue. A sender
// counts, so that it never runs into a receiver that has none: SendCredits there, TakenCount at the receiver.
//
// Thread-safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tilewire::verbs {

// Of immediates to one place.
class SendCredits {
 public:
  SendCredits() = default;
  explicit SendCredits(uint64_t most) : most_(most) {}

  bool has_room() const { return sent_ - taken_ < most_; }
  void use() { ++sent_; }
  void unuse() { --sent_; }  // it was not sent after all
  // The receiver has taken so many, in all or since it said so last.
  void set_taken(uint64_t in_all) { taken_ = in_all; }
  void add_taken(uint64_t more) { taken_ += more; }
  uint64_t under_way() const { return sent_ - taken_; }

 private:
  uint64_t most_ = 0;
  uint64_t sent_ = 0;
  uint64_t taken_ = 0;
};

// Of immediates from one place, of which `most` may wait here.
class TakenCount {
 public:
  TakenCount() = default;
  explicit TakenCount(uint64_t most) : tell_at_(std::max<uint64_t>(1, most / 4)) {}

  void add() { ++taken_; }
  uint64_t in_all() const { return taken_; }
  uint64_t untold() const { return taken_ - told_; }
  // Often enough that the sender need not wait, seldom enough to cost little.
  bool is_to_be_told() const { return untold() >= tell_at_; }
  // True once for each time that it comes to be so.
  bool has_just_to_be_told() { return is_to_be_told() && !std::exchange(is_waiting_, true); }
  void tell() {
    told_ = taken_;
    is_waiting_ = false;
  }

 private:
  uint64_t tell_at_ = 1;
  uint64_t taken_ = 0;
  uint64_t told_ = 0;
  bool is_waiting_ = false;
};

}  // namespace tilewire::verbs

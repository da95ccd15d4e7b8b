// The requests a proxy has in hand: waiting to be posted, or posted and not yet completed. The number of slots is the
// credit: a command is taken from its ring only when a slot is free for what it needs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/transport.h"

namespace tilewire {

struct RequestSlot {
  WriteRequest request;
  Epoch epoch = 0;
  uint32_t word = 0;          // the flag word this request is, or is followed by
  bool flag_follows = false;  // after_completion: the flag is written next, from the same slot
  uint32_t next_of_word = 0;  // after_completion: slot that waits for this one, plus one
  uint32_t generation = 0;    // changes whenever a completion of this slot has been seen
  bool is_busy = false;
};

class RequestTable {
 public:
  // As many slots as `max_outstanding` allows while staying below it, at least two.
  explicit RequestTable(uint32_t max_outstanding);

  static uint32_t credits(uint32_t max_outstanding);

  size_t free_count() const { return free_.size(); }
  size_t slot_count() const { return slots_.size(); }
  bool is_empty() const { return free_.size() == slots_.size(); }

  // A fresh slot with `request.id` set. There must be a free one.
  uint32_t add(const WriteRequest& request, Epoch epoch, uint32_t word);
  RequestSlot& at(uint32_t index) { return slots_[index]; }

  // The slot whose request a completion is for; nothing for an id that is not in flight (completed twice, or never
  // sent). From then on the id is used up: set_next() gives a new one.
  std::optional<uint32_t> take_completion(uint64_t id);
  // Another request from the same slot.
  void set_next(uint32_t index, const WriteRequest& request);
  void release(uint32_t index);

 private:
  static uint64_t id_of(uint32_t index, uint32_t generation) { return (uint64_t{generation} << 32) | index; }

  std::vector<RequestSlot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace tilewire

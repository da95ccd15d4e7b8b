#include "transport/pending_requests.h"

#include <algorithm>

namespace tilewire {

PendingRequests::PendingRequests(size_t peers, size_t slots) : lists_(peers), next_(slots, kNone) {
  order_.reserve(peers);
}

void PendingRequests::add(size_t peer, uint32_t slot) {
  List& list = lists_[peer];
  next_[slot] = kNone;
  if (list.head == kNone) {
    list.head = slot;
    order_.push_back(static_cast<uint32_t>(peer));
  } else {
    next_[list.tail] = slot;
  }
  list.tail = slot;
}

size_t PendingRequests::next(std::span<uint32_t> slots) const {
  size_t count = 0;
  for (const uint32_t peer : std::span(order_).first(order_.size() - refused_)) {
    for (uint32_t slot = lists_[peer].head; slot != kNone; slot = next_[slot]) {
      if (count == slots.size()) return count;
      slots[count++] = slot;
    }
  }
  return count;
}

void PendingRequests::posted(size_t count) {
  size_t emptied = 0;
  for (; count > 0; --count) {
    List& list = lists_[order_[emptied]];
    list.head = next_[list.head];
    if (list.head == kNone) ++emptied;
  }
  order_.erase(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(emptied));
}

void PendingRequests::begin_round() {
  if (refused_ > 1) std::rotate(order_.begin(), order_.begin() + 1, order_.end());
  refused_ = 0;
}

void PendingRequests::refuse() {
  std::rotate(order_.begin(), order_.begin() + 1, order_.end());
  ++refused_;
}

}  // namespace tilewire

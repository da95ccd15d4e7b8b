// What a transport has to report and has not been asked for yet.
//
// Thread-safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "transport/transport.h"

namespace tilewire {

class EventList {
 public:
  void reserve(size_t events) { events_.reserve(events); }
  void add(const Event& event) { events_.push_back(event); }
  bool is_empty() const { return head_ == events_.size(); }
  // All that wait, to look at; then clear() them.
  std::span<const Event> waiting() const { return std::span(events_).subspan(head_); }
  void clear() {
    events_.clear();
    head_ = 0;
  }
  // Moves as many as there is room for into `events`, the oldest first; returns how many.
  size_t take(std::span<Event> events) {
    const size_t count = std::min(events.size(), events_.size() - head_);
    std::copy_n(events_.begin() + static_cast<std::ptrdiff_t>(head_), count, events.begin());
    head_ += count;
    if (is_empty()) clear();
    return count;
  }

 private:
  std::vector<Event> events_;
  size_t head_ = 0;
};

}  // namespace tilewire

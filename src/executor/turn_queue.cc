#include "executor/turn_queue.h"

#include <algorithm>

namespace tilewire {

bool TurnQueue::begin(std::chrono::nanoseconds limit) {
  Lock lock(mutex_);
  const uint64_t ticket = join();
  while (!is_first(ticket)) {
    const uint64_t seen = turns_;
    const auto is_over = [&] { return is_first(ticket) || turns_ != seen; };
    if (changed_.wait_for(lock, limit, is_over)) continue;
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), ticket));
    changed_.notify_all();  // another one may be the first now
    return false;
  }
  take();
  return true;
}

void TurnQueue::begin() {
  Lock lock(mutex_);
  const uint64_t ticket = join();
  changed_.wait(lock, [&] { return is_first(ticket); });
  take();
}

void TurnQueue::end() {
  const std::lock_guard lock(mutex_);
  is_taken_ = false;
  changed_.notify_all();
}

size_t TurnQueue::waiting() {
  const std::lock_guard lock(mutex_);
  return waiting_.size();
}

uint64_t TurnQueue::join() {
  waiting_.push_back(tickets_);
  return tickets_++;
}

void TurnQueue::take() {
  waiting_.pop_front();
  is_taken_ = true;
  ++turns_;
  changed_.notify_all();  // whoever waits counts from here
}

}  // namespace tilewire

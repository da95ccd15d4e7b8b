// Threads that take turns, in the order in which they came.
//
// Thread-safety: all methods may be called from any thread; a turn may be ended by another thread than took it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

namespace tilewire {

class TurnQueue {
 public:
  // Waits for this thread's turn and begins it. False, and no turn, once the turn of one other thread has lasted for
  // `limit` while this one waited: several short ones after each other are no reason.
  bool begin(std::chrono::nanoseconds limit);
  // The same without a limit.
  void begin();
  void end();
  // How many wait.
  size_t waiting();

 private:
  using Lock = std::unique_lock<std::mutex>;
  uint64_t join();
  bool is_first(uint64_t ticket) const { return !is_taken_ && waiting_.front() == ticket; }
  void take();

  // No std::timed_mutex: ThreadSanitizer of gcc 12 does not see it being locked.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<uint64_t> waiting_;  // tickets
  uint64_t tickets_ = 0;
  uint64_t turns_ = 0;  // begun so far
  bool is_taken_ = false;
};

}  // namespace tilewire

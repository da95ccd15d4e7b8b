// How a thread that serves memory which nobody rings a bell for waits for more: it spins, then yields, then naps. Naps
// are short, so that what appears meanwhile waits no longer than one of them.
//
// Thread-safety: one thread, the one that calls prepare_thread().
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace tilewire {

struct IdleTimes {
  std::chrono::nanoseconds spin = std::chrono::microseconds(20);       // Options::spin_us
  std::chrono::nanoseconds before_nap = std::chrono::milliseconds(1);  // without work, from its end
  std::chrono::nanoseconds nap = std::chrono::microseconds(50);        // longest
};

class IdlePacer {
 public:
  explicit IdlePacer(const IdleTimes& times) : times_(times) {}

  // Asks the system for timers that are exact enough for naps this short.
  static void prepare_thread();

  // There was work: be quick again.
  void worked() { is_idle_ = false; }
  // There was none. `hint` is how long surely nothing comes from elsewhere. True when it napped.
  bool pause(std::chrono::nanoseconds hint = std::chrono::nanoseconds::max());

 private:
  IdleTimes times_;
  bool is_idle_ = false;
  std::chrono::steady_clock::time_point idle_since_{};
};

}  // namespace tilewire

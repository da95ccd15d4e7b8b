#include "transport/idle_pacer.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

namespace tilewire {
namespace {

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void IdlePacer::prepare_thread() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

bool IdlePacer::pause(std::chrono::nanoseconds hint) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_idle_) {
    is_idle_ = true;
    idle_since_ = now;
  }
  const std::chrono::nanoseconds idle = now - idle_since_;
  if (idle < times_.spin) {
    relax();
    return false;
  }
  const std::chrono::nanoseconds nap = std::min(times_.nap, hint);
  if (idle < times_.before_nap || nap <= std::chrono::nanoseconds::zero()) {
    sched_yield();
    return false;
  }
  const timespec length{.tv_sec = 0, .tv_nsec = static_cast<long>(std::min<int64_t>(nap.count(), 999'999'999))};
  nanosleep(&length, nullptr);
  return true;
}

}  // namespace tilewire

#include "memory/wait.h"

#include <sched.h>

#include <algorithm>

#include "base/log.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// Looks between two readings of the clock, which costs as much as some looks.
constexpr int kLooksPerClock = 16;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// now + span, or the end of time when that is earlier.
Clock::time_point after(Clock::time_point now, nanoseconds span) {
  return span < Clock::time_point::max() - now ? now + span : Clock::time_point::max();
}

double in_seconds(nanoseconds span) { return std::chrono::duration<double>(span).count(); }

}  // namespace

const char* to_string(WaitResult result) {
  switch (result) {
    case WaitResult::ready: return "ready";
    case WaitResult::aborted: return "aborted";
    case WaitResult::deadline: return "deadline";
  }
  return "unknown";
}

HostWaiter::HostWaiter(Bell bell, std::byte* abort_base, const WaitOptions& options)
    : bell_(bell), abort_base_(abort_base), options_(options) {}

std::optional<WaitResult> HostWaiter::look(Callback<bool> ready) const {
  if (has_abort()) return WaitResult::aborted;
  if (ready()) return WaitResult::ready;
  return std::nullopt;
}

WaitResult HostWaiter::wait_long(Callback<bool> ready, Callback<std::string> describe) {
  const Clock::time_point begin = Clock::now();
  std::optional<WaitResult> result = spin_and_yield(ready, begin);
  if (!result) result = sleep_until_end(ready, describe, begin);
  last_waited_ = Clock::now() - begin;
  total_waited_ += last_waited_;
  return *result;
}

std::optional<WaitResult> HostWaiter::spin_and_yield(Callback<bool> ready, Clock::time_point begin) const {
  const Clock::time_point spin_end = after(begin, std::min(options_.spin, options_.deadline));
  while (Clock::now() < spin_end) {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (const auto result = look(ready)) return result;
      relax();
    }
  }
  for (int i = 0; i < options_.yields; ++i) {
    sched_yield();
    if (const auto result = look(ready)) return result;
  }
  return std::nullopt;
}

WaitResult HostWaiter::sleep_until_end(Callback<bool> ready, Callback<std::string> describe, Clock::time_point begin) {
  const Clock::time_point end = after(begin, options_.deadline);
  Clock::time_point next_report = after(begin, options_.report_every);
  for (;;) {
    const Clock::time_point now = Clock::now();
    if (now >= next_report && now < end) {
      log_warn("waiting since {:.1f} s for {}; the limit is {:.1f} s", in_seconds(now - begin), describe(),
               in_seconds(options_.deadline));
      next_report = after(now, options_.report_every);
    }
    Sleeper sleeper(bell_);
    // The look between announcing and sleeping: without it a word stored before the announcement would be slept over.
    if (const auto result = look(ready)) return *result;
    if (now >= end) return WaitResult::deadline;
    sleeper.sleep(std::min<nanoseconds>(options_.max_sleep, std::min(end, next_report) - now));
    ++sleeps_;
  }
}

}  // namespace tilewire

// THE host wait: spins briefly, then yields, then sleeps on a bell, until its condition holds, the rank is aborted or
// the deadline has passed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "memory/bell.h"
#include "memory/words.h"

namespace tilewire {

enum class WaitResult {
  ready,     // the condition held, and the rank was not aborted
  aborted,   // the abort word is set; looked at first, so a ready condition does not hide it
  deadline,  // the time is up
};

const char* to_string(WaitResult result);

struct WaitOptions {
  std::chrono::nanoseconds spin = std::chrono::microseconds(20);  // Options::spin_us
  int yields = 8;
  // Longest single sleep. Words that are written without ringing the bell (by a NIC, or behind another bell) are seen
  // this late at most.
  std::chrono::nanoseconds max_sleep = std::chrono::milliseconds(1);
  std::chrono::nanoseconds deadline = std::chrono::minutes(10);  // of one wait, from its beginning
  std::chrono::nanoseconds report_every = std::chrono::seconds(30);
};

// One a thread; not thread-safe itself.
class HostWaiter {
 public:
  // Sleeps on the bell of the arena at `base`, the waiting rank's own, and obeys its abort word.
  HostWaiter(std::byte* base, const WaitOptions& options) : HostWaiter(arena_bell(base), base, options) {}
  // Sleeps on `bell` for words of this process (see LocalBell), obeys the abort word of the arena at `abort_base`, or
  // none when it is nullptr. An abort rings the arena's bell, not this one: it is seen after max_sleep at most.
  HostWaiter(Bell bell, std::byte* abort_base, const WaitOptions& options);

  // Returns when `ready()` is true, or why not. `ready` is called many times: it must be cheap and loads what it looks
  // at with seq_cst (load_word does). `describe()` gives a text for the log, "chunk 3 of rank 2 (word 77) to reach 12":
  // called once every report_every, never in a short wait. What the two throw comes out of here.
  template <class Ready, class Describe>
  WaitResult wait(Ready&& ready, Describe&& describe) {
    last_waited_ = {};
    if (has_abort()) return WaitResult::aborted;
    if (ready()) return WaitResult::ready;
    // Lambdas, so that a plain function will do as well.
    auto look = [&]() -> bool { return ready(); };
    auto tell = [&]() -> std::string { return describe(); };
    return wait_long(callback<bool>(look), callback<std::string>(tell));
  }

  // Time spent in the last wait() and in all of them; a wait that was ready at once counts nothing.
  std::chrono::nanoseconds last_waited() const { return last_waited_; }
  std::chrono::nanoseconds total_waited() const { return total_waited_; }
  // How often a wait() slept: for tests and traces.
  int64_t sleeps() const { return sleeps_; }

  void set_deadline(std::chrono::nanoseconds deadline) { options_.deadline = deadline; }

 private:
  template <class Result>
  struct Callback {
    void* object;
    Result (*call)(void*);
    Result operator()() const { return call(object); }
  };
  // Lives as long as `f`.
  template <class Result, class F>
  static Callback<Result> callback(F& f) {
    return {std::addressof(f), [](void* object) -> Result { return (*static_cast<F*>(object))(); }};
  }

  bool has_abort() const { return abort_base_ != nullptr && is_aborted(abort_base_); }
  std::optional<WaitResult> look(Callback<bool> ready) const;
  WaitResult wait_long(Callback<bool> ready, Callback<std::string> describe);
  std::optional<WaitResult> spin_and_yield(Callback<bool> ready, std::chrono::steady_clock::time_point begin) const;
  WaitResult sleep_until_end(Callback<bool> ready, Callback<std::string> describe,
                             std::chrono::steady_clock::time_point begin);

  Bell bell_;
  std::byte* abort_base_;
  WaitOptions options_;
  std::chrono::nanoseconds last_waited_{0};
  std::chrono::nanoseconds total_waited_{0};
  int64_t sleeps_ = 0;
};

}  // namespace tilewire

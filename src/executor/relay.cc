#include "executor/relay.h"

#include <fmt/format.h>

#include "base/log.h"
#include "memory/words.h"
#include "schedule/relay_role.h"

namespace tilewire {
namespace {

constexpr RoleName kRelayRole{.name = "relay", .worker = 0};
// No bell rings for the ring: the nap bounds how late an arrival is seen.
constexpr std::chrono::microseconds kNap{50};

}  // namespace

RelayThread::RelayThread(Session& session, const CallSite& site, RelayRing* ring) : session_(session), ring_(ring) {
  if (ring_ == nullptr) return;
  const TeamRole role{kRelayRole.name, [this, &site] {
                        try {
                          run(site);
                        } catch (const std::exception& error) {
                          tell(error.what());
                        }
                      }};
  session_.relay_team().start({&role, 1});
}

RelayThread::~RelayThread() {
  if (ring_ == nullptr) return;
  must_stop_ = true;
  session_.relay_team().join();
}

// Without a relay the call would wait for words that nobody publishes.
void RelayThread::tell(const char* what) noexcept {
  try {
    session_.control().send_abort(ErrorKind::internal,
                                  fmt::format("the relay of rank {}: {}", session_.rank().value, what));
  } catch (const std::exception& error) {
    log_error("the end of the relay could not be told: {}", error.what());
  }
}

void RelayThread::run(const CallSite& site) {
  Arena& arena = session_.arena();
  const TestDelay delay = test_delay(session_, site, kRelayRole);
  TraceRing* trace = session_.trace_ring(kRelayRole.name, 0);
  WaitOptions options = session_.wait_options();
  options.max_sleep = kNap;
  options.report_every = options.deadline;  // that nothing arrives is nothing to report
  HostWaiter waiter(arena.base(), options);
  RelayRole role(session_.rank(), ring_->next_slot);
  for (RelayWork w; role.next(w);) {
    Arrival arrival;
    const auto has_one = [&] { return must_stop_ || ring_->drain().drain({&arrival, 1}) == 1; };
    // A call may be long; whoever needs an arrival has a deadline of its own.
    WaitResult result = WaitResult::deadline;
    while (result == WaitResult::deadline) result = waiter.wait(has_one, [] { return std::string("an arrival"); });
    if (result == WaitResult::aborted || arrival.epoch == 0) return;
    w.arrival = {arrival.word, arrival.epoch};
    const int64_t begin_ns = trace == nullptr ? 0 : trace_clock_ns();
    delay.delay(w.slot);
    publish_max(arena.base(), arena.layout(), role.publish(w, 0).word, arrival.epoch);
    ring_->next_slot = w.slot + 1;
    if (trace == nullptr) continue;
    trace->add({.name = "arrival",
                .work = static_cast<int64_t>(w.slot),
                .t_begin_ns = begin_ns,
                .t_end_ns = trace_clock_ns(),
                .link = TraceLink::network});
  }
}

}  // namespace tilewire

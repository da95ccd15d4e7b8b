#include "executor/role_context.h"

#include <fmt/format.h>

#include <cstring>

#include "memory/words.h"
#include "base/hash.h"
#include "schedule/word_text.h"

namespace tilewire {
namespace {

// For which a wait that has expired lets those speak who know of an absent rank.
constexpr std::chrono::nanoseconds kMostGrace = std::chrono::seconds(2);

}  // namespace

TestDelay test_delay(const Session& session, const CallSite& site, RoleName role) {
  const auto number = static_cast<int32_t>(hash64(fmt::format("{} {}", role.name, role.worker)) & 0x7fffffff);
  return TestDelay(session.options().test_delay_us, site.epoch, session.rank(), number);
}

RoleContext::RoleContext(Session& session, const CallSite& site, RoleName role)
    : session_(session),
      site_(site),
      role_(role),
      waiter_(session.arena().base(), session.wait_options()),
      test_delay_(test_delay(session, site, role)),
      trace_(session.trace_ring(role.name, role.worker)) {}

bool RoleContext::is_ready(Need need) const {
  const Arena& arena = session_.arena();
  return has_reached(arena.base(), arena.layout(), need.word, site_.epoch - static_cast<Epoch>(need.lag));
}

void RoleContext::wait(Need need) {
  if (!is_ready(need)) {
    flush();
    const WaitResult result = waiter_.wait([&] { return is_ready(need); }, [&] { return text_of(need); });
    if (result != WaitResult::ready) leave(result, text_of(need));
  } else {
    leave_if_aborted();
  }
  const FlagLayout& flags = session_.arena().layout().flags;
  if (need.word != FlagLayout::sent() && flags.is_begun(need.word)) {
    check_record(Rank{static_cast<int32_t>(need.word)});
  }
}

void RoleContext::leave_if_aborted() const {
  if (is_aborted(session_.arena().base())) throw CallAborted{};
}

void RoleContext::check_record(Rank peer) {
  CallRecord seen;
  std::memcpy(&seen, own_half() + ArenaLayout::record_offset(peer), sizeof(seen));
  if (seen == site_.record) return;
  session_.control().report_mismatch(site_.attempt, peer, *site_.text);
  leave(WaitResult::aborted, fmt::format("the verdict on the mismatch with rank {}", peer.value));
}

void RoleContext::copy_to(Rank local_peer, int64_t offset, int64_t bytes) const {
  std::memcpy(half_of(local_peer) + offset, own_half() + offset, static_cast<size_t>(bytes));
}

void RoleContext::publish(Publish p) {
  held_.push_back(p);
  if (static_cast<int32_t>(held_.size()) > publish_behind_) {
    const Publish first = held_.front();
    held_.pop_front();
    publish_word(session_.arena().peer(first.to), session_.arena().layout(), first.word, site_.epoch);
  }
}

void RoleContext::flush() {
  for (const Publish& p : held_) {
    publish_word(session_.arena().peer(p.to), session_.arena().layout(), p.word, site_.epoch);
  }
  held_.clear();
}

void RoleContext::post(Ring ring, const Command& command) {
  CommandProducer& producer = session_.ring(ring);
  if (producer.try_post(command)) return;
  flush();
  const auto text = [&] { return fmt::format("room in command ring {}", static_cast<int>(ring)); };
  const WaitResult result = waiter_.wait([&] { return producer.try_post(command); }, text);
  if (result != WaitResult::ready) leave(result, text());
}

// The words of one role that has waited too long, for all ranks to read. A role may wait for another one that waits in
// turn; so whoever misses a rank speaks first, and the others only when nobody has.
void RoleContext::leave(WaitResult result, const std::string& waiting_for) {
  if (result == WaitResult::deadline) {
    const std::string absent = text_of_absent();
    if (absent.empty()) await_abort(std::min(session_.wait_options().deadline / 4, kMostGrace));
    session_.control().send_abort(
        ErrorKind::deadline,
        fmt::format("rank {} waited {:.3g} s for {}{} [{}, call {}, epoch {}, role {} {}]; {}", session_.rank().value,
                    std::chrono::duration<double>(session_.wait_options().deadline).count(), waiting_for, absent,
                    site_.op, site_.attempt, site_.epoch, role_.name, role_.worker, kLateAdvice));
  }
  throw CallAborted{};
}

// "; rank 3 has not begun the call" of the ranks that end calls with this one, or "".
std::string RoleContext::text_of_absent() const {
  const FlagLayout& flags = session_.arena().layout().flags;
  const CallFrame frame = session_.frame(site_.epoch);
  std::string ranks;
  int count = 0;
  MemberCursor members;
  for (Rank p; members.next(frame, p);) {
    if (is_ready({flags.begun(p), 0})) continue;
    ranks += fmt::format("{}{}", count++ == 0 ? "" : ", ", p.value);
  }
  if (count == 0) return "";
  return fmt::format("; rank{} {} {} not begun the call", count == 1 ? "" : "s", ranks, count == 1 ? "has" : "have");
}

void RoleContext::await_abort(std::chrono::nanoseconds most) {
  WaitOptions options = session_.wait_options();
  options.deadline = most;
  options.report_every = most;
  HostWaiter waiter(session_.arena().base(), options);
  const WaitResult result = waiter.wait([] { return false; }, [] { return std::string("news of an absent rank"); });
  if (result == WaitResult::aborted) throw CallAborted{};
}

std::string RoleContext::text_of(Need need) const {
  const Arena& arena = session_.arena();
  return fmt::format("{} to reach epoch {} (seen {})", word_text(arena.layout().flags, need.word, site_.family_names),
                     site_.epoch - static_cast<Epoch>(need.lag), load_word(arena.base(), arena.layout(), need.word));
}

void RoleContext::end(TraceEvent event, const Times& times) {
  ++step_;
  if (trace_ == nullptr) return;
  event.t_begin_ns = times.waited_ns;
  event.t_wait_ns = times.waited_ns - times.begin_ns;
  event.t_end_ns = trace_clock_ns();
  trace_->add(event);
}

}  // namespace tilewire

// What a role thread of the host executor has in its hands: waits, signals, commands, trace. One a thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "executor/session.h"
#include "memory/test_delay.h"
#include "schedule/role.h"
#include "schedule/wire.h"

namespace tilewire {

// Thrown inside role threads when the abort word is set, to leave; the call turns it into the error that all ranks get.
struct CallAborted {};

// What the roles of a call have in common.
struct CallSite {
  const char* op = "";
  uint64_t attempt = 0;
  Epoch epoch = 0;
  CallRecord record;                             // this rank's own
  CallTextRef text;                              // of the call, for a mismatch
  const char* family_names[kWordFamilies] = {};  // of the op's word families
};

struct RoleName {
  const char* name = "";
  int32_t worker = 0;
};

// Random delays of its own for each role and worker of a call; off unless the option test_delay_us is set.
TestDelay test_delay(const Session& session, const CallSite& site, RoleName role);

class RoleContext {
 public:
  RoleContext(Session& session, const CallSite& site, RoleName role);

  // Blocks until the word is there, after flushing what is held back. A rank's record is compared with the own one when
  // its begun word comes. Throws CallAborted.
  void wait(Need need);
  bool is_ready(Need need) const;
  // Between pieces of work, so that a role without waits leaves too. Throws CallAborted.
  void leave_if_aborted() const;
  // To a rank of the own node. With publish_behind set, up to that many are held back.
  void publish(Publish p);
  void flush();
  // Throws CallAborted when the ring stays full past the deadline or the call is aborted.
  void post(Ring ring, const Command& command);
  void delay() const { test_delay_.delay(step_); }

  void set_publish_behind(int32_t works) { publish_behind_ = works; }
  Session& session() { return session_; }
  const CallSite& site() const { return site_; }
  std::byte* own_half() const { return half(session_.arena().base()); }
  std::byte* half_of(Rank local_peer) const { return half(session_.arena().peer(local_peer)); }
  // Bytes of the own half to the same place in that of a rank of the own node.
  void copy_to(Rank local_peer, int64_t offset, int64_t bytes) const;

  // Trace: begin() before the waits of a piece of work, waited() after them; end() when it is done, with the begin and
  // wait times of that piece.
  struct Times {
    int64_t begin_ns = 0;
    int64_t waited_ns = 0;
  };
  int64_t now_ns() const { return trace_ == nullptr ? 0 : trace_clock_ns(); }
  void end(TraceEvent event, const Times& times);

 private:
  std::byte* half(std::byte* base) const { return base + session_.arena().layout().half_offset(site_.epoch); }
  [[noreturn]] void leave(WaitResult result, const std::string& waiting_for);
  std::string text_of_absent() const;
  void await_abort(std::chrono::nanoseconds most);
  void check_record(Rank peer);
  std::string text_of(Need need) const;

  Session& session_;
  const CallSite& site_;
  RoleName role_;
  HostWaiter waiter_;
  TestDelay test_delay_;
  TraceRing* trace_;
  uint64_t step_ = 0;
  int32_t publish_behind_ = 0;
  std::deque<Publish> held_;
};

// The loop of every role (see schedule/role.h). Up to cursors.load_ahead pieces of work are acquired early, as far as
// their needs are there already; the role blocks only when it has nothing to do. `work(const Work&)` does one piece and
// returns its trace event.
template <class Role, class DoWork>
void run_role(RoleContext& context, Role role, Cursors cursors, DoWork&& work) {
  using Work = typename Role::Work;
  struct Loaded {
    Work work;
    RoleContext::Times times;
  };
  std::deque<Loaded> loaded;
  std::optional<Work> next;  // the first piece that is not acquired
  const auto advance = [&] {
    Work w;
    if (role.next(w)) {
      next = w;
    } else {
      next.reset();
    }
  };
  const auto is_ready = [&] {
    for (int32_t i = 0; i < next->needs; ++i) {
      if (!context.is_ready(role.need(*next, i))) return false;
    }
    return true;
  };
  const auto acquire = [&] {
    Loaded l{*next, {.begin_ns = context.now_ns(), .waited_ns = 0}};
    for (int32_t i = 0; i < l.work.needs; ++i) context.wait(role.need(l.work, i));
    l.times.waited_ns = context.now_ns();
    loaded.push_back(l);
    advance();
  };
  context.set_publish_behind(cursors.publish_behind);
  advance();
  while (next || !loaded.empty()) {
    context.leave_if_aborted();
    if (loaded.empty()) acquire();
    while (next && static_cast<int32_t>(loaded.size()) <= cursors.load_ahead && is_ready()) acquire();
    const Loaded l = loaded.front();
    loaded.pop_front();
    context.delay();
    const TraceEvent event = work(l.work);
    for (int32_t i = 0; i < l.work.publishes; ++i) context.publish(role.publish(l.work, i));
    context.end(event, l.times);
  }
  context.flush();
}

}  // namespace tilewire

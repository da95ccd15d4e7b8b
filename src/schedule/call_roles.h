// How every call of every op begins and ends. One agent of a rank runs these in order: BeginRole; then the op's own
// roles run beside it; when they have finished it runs the op's drain role (it acquires every word addressed to this
// rank in the call, read or not), DoneRole and AwaitRole.
//
// The ranks that end calls together (the "done set") are the own node, the rail partners, and those whose rail partner
// this rank is; the set is the same for all ops, so a peer is one call ahead at most.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "schedule/arena_layout.h"
#include "schedule/role.h"
#include "schedule/topology.h"
#include "schedule/wire.h"

namespace tilewire {

// The command rings of a rank, one producer each. The last command of every call goes into each of them.
enum class Ring : int32_t { call, send };
inline constexpr int32_t kRings = 2;

// Stages of a call: an agent begins when all agents of lower stages of its rank have finished. Roles of an op run in
// kOpStage, its drain role in kDrainStage.
inline constexpr int32_t kOpStage = 0, kDrainStage = 1, kDoneStage = 2, kAwaitStage = 3, kStages = 4;

// Where an agent (a CTA, a warp, a thread: one iterator of one rank) stands: all that whoever runs it needs to know
// besides the iterator.
struct AgentPlace {
  const char* role = "";  // a literal
  int32_t worker = 0;
  int32_t stage = kOpStage;
  int32_t ring = -1;         // the command ring that it fills, -1 without one
  bool has_cursors = false;  // waits ahead and publishes behind by `cursors`
  Cursors cursors{};
  bool reads_own_writes = false;        // reads what earlier work of its own wrote, so it cannot load ahead at all
  int32_t most_load_ahead = INT32_MAX;  // as far as a window that it waits for lets it

  // The same place, of one of several workers, of one with cursors, of one in another stage.
  TILEWIRE_HD constexpr AgentPlace at(int32_t number) const {
    AgentPlace place = *this;
    place.worker = number;
    return place;
  }
  TILEWIRE_HD constexpr AgentPlace with(const Cursors& of_plan, int32_t most_ahead = INT32_MAX) const {
    AgentPlace place = *this;
    place.has_cursors = true;
    place.cursors = of_plan;
    place.most_load_ahead = most_ahead;
    return place;
  }
  TILEWIRE_HD constexpr AgentPlace reading_own_writes() const {
    AgentPlace place = *this;
    place.reads_own_writes = true;
    return place;
  }
  TILEWIRE_HD constexpr AgentPlace in_stage(int32_t of_call) const {
    AgentPlace place = *this;
    place.stage = of_call;
    return place;
  }
};

// What the call roles need to know; the same for all ops of a communicator.
struct CallFrame {
  Topology topology;
  ArenaLayout arena;
  Rank me;
  Epoch epoch = 0;

  TILEWIRE_HD constexpr bool has_network() const { return topology.nodes > 1; }
  TILEWIRE_HD constexpr bool is_remote(Rank r) const { return !topology.same_node(me, r); }
};

// The last command of a call on a command ring. Every role that fills a ring gives it behind all else, once, also when
// it has nothing else to send; where there is one node there are no rings. A ring that no role of an op fills is ended
// by an EndRole.
class RingEnd {
 public:
  // Makes `w` a piece of work that gives it. False when that has been done, or there is no ring.
  template <class Work>
  TILEWIRE_HD constexpr bool next(const CallFrame& frame, Work& w) {
    if (is_given_ || !frame.has_network()) return false;
    is_given_ = true;
    w.command = Command{.kind = CommandKind::call_end, .epoch = frame.epoch};
    return true;
  }

 private:
  bool is_given_ = false;
};

// One piece of work of a call role. To a rank of another node it is done by giving `command` to the proxy, which
// publishes.
struct CallWork : WorkBase {
  Rank peer;
  bool by_command = false;
  Command command;
};

// The members of the done set, in rank order.
struct MemberCursor {
  int32_t next_rank = 0;

  TILEWIRE_HD constexpr bool next(const CallFrame& f, Rank& member) {
    while (next_rank < f.topology.ranks) {
      member = Rank{next_rank++};
      if (member != f.me && f.topology.ends_together(f.me, member)) return true;
    }
    return false;
  }
};

// Hands the rank's CallRecord, which lies in its own half, to itself and to every member.
class BeginRole {
 public:
  using Work = CallWork;
  TILEWIRE_HD explicit constexpr BeginRole(const CallFrame& frame) : f_(frame) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.publishes = 1;
    w.peer = f_.me;
    if (!own_done_) {
      own_done_ = true;
      return true;
    }
    if (!members_.next(f_, w.peer)) return false;
    w.by_command = f_.is_remote(w.peer);
    w.publishes = w.by_command ? 0 : 1;
    const uint64_t unit = static_cast<uint64_t>(ArenaLayout::record_offset(f_.me)) / kWireUnitBytes;
    w.command = {.kind = CommandKind::write,
                 .peer = w.peer,
                 .word = f_.arena.flags.begun(f_.me),
                 .units = 1,
                 .src_unit = unit,
                 .dst_unit = unit};
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const { return {w.peer, f_.arena.flags.begun(f_.me)}; }

 private:
  Kept<CallFrame> f_;
  MemberCursor members_;
  bool own_done_ = false;
};

// Says to every member that this rank has finished the call. The first piece of work holds all the needs: the records
// of all members, and sent(e - 1). Behind the last one comes the end of the command ring.
class DoneRole {
 public:
  using Work = CallWork;
  TILEWIRE_HD explicit constexpr DoneRole(const CallFrame& frame) : f_(frame) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    if (!needs_given_) {
      needs_given_ = true;
      w.needs = f_.topology.ranks + (f_.has_network() ? 1 : 0);
      return true;
    }
    if (members_.next(f_, w.peer)) {
      w.by_command = f_.is_remote(w.peer);
      w.publishes = w.by_command ? 0 : 1;
      w.command = {.kind = CommandKind::signal, .peer = w.peer, .word = f_.arena.flags.done(f_.me)};
      return true;
    }
    w.by_command = end_.next(f_, w);
    return w.by_command;
  }
  // begun of every rank; a rank that is no member sends none, the own word stands in for it.
  TILEWIRE_HD constexpr Need need(const Work&, int32_t i) const {
    if (i == f_.topology.ranks) return {FlagLayout::sent(), 1};
    const Rank r{i};
    return {f_.arena.flags.begun(f_.topology.ends_together(f_.me, r) ? r : f_.me), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t) const { return {w.peer, f_.arena.flags.done(f_.me)}; }

 private:
  Kept<CallFrame> f_;
  MemberCursor members_;
  bool needs_given_ = false;
  RingEnd end_;
};

// All that is given to a ring that no role of the op fills: its end.
class EndRole {
 public:
  using Work = CallWork;
  TILEWIRE_HD explicit constexpr EndRole(const CallFrame& frame) : f_(frame) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.by_command = end_.next(f_, w);
    return w.by_command;
  }
  TILEWIRE_HD constexpr Need need(const Work&, int32_t) const { return {}; }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<CallFrame> f_;
  RingEnd end_;
};

// The roles that for_each_role(schedule, cursors, visit) beside an op's Schedule lists, and an EndRole for each ring
// that none of them fills; done ends Ring::call. Host only: a kernel takes them from the op's list (role_list.h).
template <class Schedule, class Visit>
void for_each_agent(const Schedule& schedule, Cursors cursors, Visit&& visit) {
  bool is_filled[kRings] = {};
  is_filled[static_cast<int32_t>(Ring::call)] = true;
  for_each_role(schedule, cursors, [&](const AgentPlace& place, const auto& role) {
    if (place.ring >= 0) is_filled[place.ring] = true;
    visit(place, role);
  });
  for (int32_t ring = 0; schedule.frame.has_network() && ring < kRings; ++ring) {
    if (!is_filled[ring]) visit(AgentPlace{.role = "end", .worker = ring, .ring = ring}, EndRole(schedule.frame));
  }
}

// Waits until every member has finished the call; with `also_sent` also until everything sent has landed, so that a
// send source in user memory may be written again.
class AwaitRole {
 public:
  using Work = CallWork;
  TILEWIRE_HD constexpr AwaitRole(const CallFrame& frame, bool also_sent)
      : f_(frame), also_sent_(also_sent && frame.has_network()) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    w = Work{};
    w.needs = 1;
    if (members_.next(f_, w.peer)) return true;
    w.peer = f_.me;
    const bool more = also_sent_;
    also_sent_ = false;
    return more;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t) const {
    return {w.peer == f_.me ? FlagLayout::sent() : f_.arena.flags.done(w.peer), 0};
  }
  TILEWIRE_HD constexpr Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Kept<CallFrame> f_;
  MemberCursor members_;
  bool also_sent_;
};

}  // namespace tilewire

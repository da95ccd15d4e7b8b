// The state of one rank's calls, for telling ranks that are in different steps from ranks that are merely late.
//
// Pure logic: no socket, no lock, no clock. The owner calls it under a lock and does what the returned verdict says.
//
// A rank's calls are numbered from 1 by the caller ("calls tried on this communicator"). Call n goes through
//   begin -> any number of agreement steps (gathers that belong to n) -> enter -> end,
// or begin -> steps -> refuse, or refuse without begin. From enter on the rank waits for peers and joins no more steps
// of n. Between begin and enter, outside a step, it waits for nobody and may still refuse: a peer's refusal that it
// hears then is a fault only when it goes on.
#pragma once

#include <tilewire/error.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"

namespace tilewire {

// A reason to abort the communicator on all ranks; empty when there is none.
struct CallFault {
  ErrorKind kind = ErrorKind::internal;
  std::string text{};
};
using Verdict = std::optional<CallFault>;

// One agreement step: which gather of which call, and a hash of what has to be equal in it.
struct CallStep {
  uint64_t call = 0;
  std::string kind{};  // "plan", "row counts"
  uint64_t hash = 0;

  friend bool operator==(const CallStep&, const CallStep&) = default;
};

// A gather that belongs to no call ("arena growth", a handle's creation).
struct OutsideStep {
  std::string kind{};
  uint64_t sequence = 0;    // the how-manieth gather of its rank, those of calls included
  uint64_t last_tried = 0;  // the rank's latest call
};

// What a rank says of a call.
struct RankText {
  Rank rank{};
  CallText text{};
  std::string note{};  // behind it, for people: not compared
};

// What to do where ranks make different calls.
inline constexpr const char* kSameCallsAdvice =
    "make the same calls in the same order, with the same sizes, on all ranks";

// "call 3 is not the same on all ranks: rank 0: ... | rank 2: ...; advice". The lower rank comes first, so that whoever
// finds it writes the same. Ranks whose calls have different names get kSameCallsAdvice; those that bring different
// things, which the first parts say, the advice of their call. Where a later part differs, as in "K = 48", it is named,
// with its own advice if it has one.
std::string mismatch_text(uint64_t call, const RankText& one, const RankText& other);
// "rank 1 refused call 3 that rank 2 is in: ..."
// Of a wait in a call that was too long, and of ranks that close too soon: what to do.
inline constexpr const char* kLateAdvice = "where another rank is only late, raise TILEWIRE_DEADLINE_S (deadline_s=)";
inline constexpr const char* kClosedAdvice = "make the same calls on all ranks before one of them closes";
std::string left_text(Rank left, Rank waiting, const std::string& in);
std::string refused_text(uint64_t call, Rank refusing, const std::string& text, Rank waiting);

// Calls that a rank may have entered and not yet ended: one on CPU ranks, those in flight on GPU ranks.
constexpr size_t kMostCallsInFlight = 48;

class CallLedger {
 public:
  // A peer may still be in any of the calls that are in flight here; refused ones add to them.
  static constexpr size_t kKeptCalls = kMostCallsInFlight + 16;

  CallLedger(Rank rank, int32_t world_size) : rank_(rank), world_size_(world_size) {}

  // What this rank does.
  Verdict begin_call(uint64_t call, CallTextRef text);  // fault: a peer refused it, or has left before it
  void describe_call(uint64_t call, CallTextRef text);  // a better text of a call that is begun
  Verdict agree(const CallStep& step);                  // fault: a peer is in another step of this call, or refused it
  void end_step(uint64_t call);                         // the step that agree() joined is over: all ranks had joined it
  Verdict enter_call(uint64_t call);  // fault: a peer waits in a step this rank never joined, or refused the call
  void end_call(uint64_t call);
  OutsideStep join_outside(std::string kind);
  void refuse_call(uint64_t call, std::string text);  // begun or not, but not entered

  // What is heard from others.
  Verdict on_remote_refused(Rank rank, uint64_t call, std::string text);
  Verdict on_remote_step(Rank rank, const CallStep& step, CallText text);
  Verdict on_remote_outside(Rank rank, const OutsideStep& step);
  Verdict on_remote_left(Rank rank, uint64_t last_ended);

  // Of a call begun or refused lately; else it says where this rank is.
  CallText describe(uint64_t call) const;
  // Of the latest call whose text has that hash, for who has not the number of the call.
  CallText describe_hash(uint64_t hash) const;
  bool has_left(Rank rank) const { return left_.contains(rank.value); }
  uint64_t last_ended() const { return last_ended_; }
  uint64_t last_tried() const { return last_tried_; }
  // Remembered refusals that not all ranks have matched yet.
  size_t open_refusals() const { return refusals_.size(); }
  // The first of them that is this rank's own too: the others may still be in that call.
  struct LoneRefusal {
    uint64_t call = 0;
    std::vector<int32_t> lacking{};  // ranks that have not refused it
  };
  std::optional<LoneRefusal> lone_refusal() const;

 private:
  enum class State { begun, entered, ended, refused };
  struct Call {
    State state = State::begun;
    CallTextRef text;
    std::vector<CallStep> steps;
    bool is_in_step = false;
  };
  struct Refusal {
    std::set<int32_t> ranks;  // who refused it, this rank included
    Rank first;               // the first peer that did
    std::string text;
  };
  struct RemoteStep {
    CallStep step;
    CallText text;
  };

  CallFault refused_fault(uint64_t call, const Refusal& refusal) const;
  Verdict check_refusals(uint64_t call) const;
  CallFault step_fault(Rank peer, const RemoteStep& theirs, const RankText& mine) const;
  CallFault left_fault(Rank peer, uint64_t call) const;
  Verdict check_step(Rank peer, const RemoteStep& theirs) const;
  Verdict check_steps_of(uint64_t call) const;
  Verdict check_outside(Rank peer, const OutsideStep& theirs) const;
  void forget_old();

  Rank rank_;
  int32_t world_size_;
  uint64_t last_tried_ = 0;
  uint64_t last_ended_ = 0;
  std::map<uint64_t, Call> calls_;                 // the latest few
  std::map<uint64_t, Refusal> refusals_;           // not yet matched by all ranks
  std::map<int32_t, RemoteStep> remote_steps_;     // each peer's latest
  std::map<int32_t, OutsideStep> remote_outside_;  // each peer's latest
  uint64_t joined_ = 0;                            // gathers of both sorts
  std::map<int32_t, uint64_t> left_;               // who left, after which call
};

}  // namespace tilewire

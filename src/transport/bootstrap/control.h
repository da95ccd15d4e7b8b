// The control connection: the star of TCP connections that stays open from rendezvous to close(), and one monitor
// thread a rank. It carries gathers at creation and per call, heartbeats and death notices, refusals, mismatch reports
// and the abort. It is not on the data path.
//
// Rank 0 relays and decides: the first abort that reaches it is the one that every rank gets, itself included. When the
// connection to rank 0 is gone, a rank decides for itself.
//
// Thread-safety: all methods may be called from any thread, except close() and the destructor from a callback. Gathers
// of one rank are serialised. Callbacks run on the monitor thread, one at a time, must not block and must not throw.
//
// Errors: allgather(), barrier(), begin_call(), enter_call(), await_refusals() and throw_if_aborted() throw the communicator's abort (its
// kind and text) once there is one, and Error(closed) after close(). The other methods throw nothing.
#pragma once

#include <tilewire/error.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/bootstrap/call_ledger.h"
#include "transport/bootstrap/rendezvous.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

struct ControlOptions {
  std::chrono::milliseconds heartbeat{500};
  std::chrono::milliseconds death{10'000};      // silence longer than this is a death; at least 2 heartbeats
  size_t max_gather_bytes = size_t{64} << 20;   // all ranks' contributions to one gather together
  std::chrono::milliseconds close_linger{400};  // how long rank 0 goes on relaying for ranks that have not closed yet
};

struct AbortNotice {
  Rank rank{};  // who raised it, or who died
  ErrorKind kind = ErrorKind::aborted;
  std::string text{};  // the same on all ranks
};

struct ControlCallbacks {
  // Once in a communicator's life: a rank died, aborted, refused what others are in, or does not match.
  std::function<void(const AbortNotice&)> on_abort{};
  // A rank closed in an orderly way after ending call `last_ended`. Not an abort by itself; a rank inside a later call,
  // or that begins one, gets an abort that names it.
  std::function<void(Rank rank, uint64_t last_ended)> on_left{};
};

// The options that set deadlines of gathers: of calls and what else a program does, and of the making of a communicator.
inline constexpr const char* kCallLimitVariable = "TILEWIRE_DEADLINE_S";
inline constexpr const char* kJoinLimitVariable = "TILEWIRE_CONNECT_DEADLINE_S";

// Which gather this is. Ranks whose tags differ are an Error(mismatch) that names both.
struct GatherTag {
  std::string kind{};  // "plan", "row counts", "arena growth"
  uint64_t call = 0;   // the call it belongs to (begin_call() before it), or 0 for a gather outside calls
  uint64_t hash = 0;   // of what has to be equal on all ranks besides
  const char* limit_variable = kCallLimitVariable;  // to be raised where ranks are only late
};

class ControlConnection {
 public:
  // Throws Error(invalid_argument) for options that contradict each other, Error(resource) when no thread or descriptor
  // is to be had.
  ControlConnection(Rendezvous joined, const ControlOptions& options, ControlCallbacks callbacks);
  // Stops the thread and closes the sockets without a word to any peer (they see a loss unless close() came first). In
  // a forked child it only forgets.
  ~ControlConnection();
  ControlConnection(const ControlConnection&) = delete;
  ControlConnection& operator=(const ControlConnection&) = delete;

  Rank rank() const;
  int32_t world_size() const;
  const JobKey& job() const;
  const std::vector<HostIdentity>& hosts() const;  // by rank

  // Everybody's bytes, by rank. Past the deadline the communicator is aborted on all ranks with an Error(deadline) that
  // lists who had not come. A rank that left is an Error(peer_lost).
  std::vector<Bytes> allgather(const GatherTag& tag, Bytes mine, SteadyTime deadline);
  void barrier(const std::string& name, SteadyTime deadline, const char* limit_variable = kCallLimitVariable);

  // The life of a call; see call_ledger.h. begin -> allgather with tag.call = call, if any -> enter -> end.
  void begin_call(uint64_t call, CallTextRef text);
  void describe_call(uint64_t call, CallTextRef text);  // anew, once more is known
  void enter_call(uint64_t call);
  void end_call(uint64_t call);
  // Local checks refused the call, before or after begin_call() and instead of enter_call(): nothing of it was sent.
  void refuse_call(uint64_t call, const std::string& text);
  // Until all ranks have refused what this rank has refused: one that is in such a call could take this rank's next one
  // for its counterpart, where calls have no numbers on their way. Past the deadline the communicator is aborted on all
  // ranks with an Error(deadline) that lists who had not come. Throws as enter_call() does.
  void await_refusals(SteadyTime deadline);

  // This rank's view of call `call` differs from that of `peer`, seen in the peer's record. Rank 0 asks the peer for
  // its own and aborts all ranks with one text that has both (see mismatch_text()). Does not wait.
  // `hash_of_peer`: of the text of the peer's call, where that is known and the number that the peer gives it is not.
  void report_mismatch(uint64_t call, Rank peer, const CallText& own, uint64_t hash_of_peer = 0);

  // Ends the communicator on all ranks. Does not wait; on_abort comes on this rank too. Ignored after an earlier abort.
  void send_abort(ErrorKind kind, const std::string& text);

  std::optional<AbortNotice> aborted() const;
  void throw_if_aborted() const;
  // Closed in an orderly way. True of all when rank 0 has, who would have told.
  bool has_left(Rank rank) const;
  // Error(closed) in a process that was forked from the one that made this. Takes no lock, of which the parent may have
  // held any at the fork.
  void throw_if_forked() const;

  // Says goodbye, stops the thread, closes the sockets. Idempotent, needs no peer, below one second.
  void close();

 private:
  class Monitor;
  std::unique_ptr<Monitor> monitor_;
};

}  // namespace tilewire

// One queue pair with what is under way on it. SRD keeps no order, so whatever a request promises it promises by itself:
// an immediate goes with the request whose data it announces. A request that needs several keys is several writes; where
// it has an immediate, that goes with the last of them, once the others have completed.
//
// Requests of a batch are posted together. A queue that is full refuses all of a batch; then it is as if none of it had
// been added.
//
// A queue pair that has failed flushes what is under way, sends and receives, in any order with what it failed by. That
// comes first here: what is flushed is told when nothing is under way any more.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/event_list.h"
#include "transport/srd/flights.h"
#include "transport/srd/queue.h"
#include "transport/verbs/credits.h"

namespace tilewire {

// From a lane to a queue pair of a peer.
struct SrdPath {
  Rank peer;
  SrdTarget target;
  verbs::SendCredits credits{};  // of immediates
  verbs::Piece nothing{};        // for an immediate alone
};

class SrdLane {
 public:
  explicit SrdLane(const SrdQueue::Setup& setup) : queue_(setup), flights_(setup.send_entries) {}

  uint32_t number() const { return queue_.number(); }
  bool has_probe_under_way(Rank peer) const { return flights_.has(SrdFlightKind::probe, peer); }
  bool has_room() const { return flights_.room() > 0; }

  // Adds a request to the batch, or false where there is no entry for it here or at the peer. `pieces` has none for an
  // immediate alone; of `path` more is used later.
  bool try_add(const WriteRequest& request, std::span<const verbs::Piece> pieces, SrdPath& path);
  // The same for a write of the transport's own, a probe or a report.
  bool try_add_own(SrdFlightKind kind, SrdPath& path, const verbs::Piece& piece, uint32_t immediate);
  // Posts the batch; false where the queue was full. Where the device refuses it for another reason its requests fail.
  bool post(EventList& events);

  // Completions, and what has waited for them.
  void take_sent(EventList& events);
  template <class Take>
  void take_arrived(Take&& take) {
    queue_.take_arrived(take);
    queue_.renew_receives();
  }
  // Throws Error(unavailable) where the device has given up a receive, and no request has said why.
  void check_receives() const;

 private:
  struct Split {
    WriteRequest request{};
    SrdTarget target{};
    verbs::Piece last{};
    uint32_t left = 0;  // parts under way
    bool has_failed = false;
  };
  struct Added {
    uint32_t flight = 0;
    verbs::SendCredits* credits = nullptr;  // that it has used
  };

  void add(const SrdFlight& flight, const SrdTarget& target, const verbs::Piece& piece, const uint32_t* immediate);
  void begin();
  void add_split(const WriteRequest& request, std::span<const verbs::Piece> pieces, const SrdPath& path);
  void undo_batch();
  void end_flight(uint32_t number, int32_t status, EventList& events);
  void end_part(const SrdFlight& flight, int32_t status, EventList& events);
  void post_late(EventList& events);
  void free_split(uint32_t number);
  void tell_failure(EventKind kind, const SrdFlight& flight, int32_t status, EventList& events);

  SrdQueue queue_;
  SrdFlights flights_;
  std::vector<Added> batch_;
  std::vector<uint32_t> batch_splits_;
  std::vector<Split> splits_;
  std::vector<uint32_t> free_splits_;
  std::vector<uint32_t> late_;  // splits whose last part can go
  std::vector<Event> flushed_;  // not told yet. Nothing more is added then
};

}  // namespace tilewire

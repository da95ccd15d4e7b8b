// One RC queue pair to one peer: what is posted, what has completed, and how many immediates the peer has room for.
//
// Requests are added to a chain and posted together by flush(), the last one signalled: completions of RC come in order,
// so one of them stands for all before it. The receiver reports how many immediates it has taken by a write into this
// side's memory, so a sender never runs into a receiver that is not ready.
//
// Thread-safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "transport/event_list.h"
#include "transport/rc/address.h"
#include "transport/rc/rc_options.h"
#include "transport/transport.h"
#include "transport/verbs/credits.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/pieces.h"
#include "transport/verbs/port.h"

namespace tilewire {

// What a queue needs of the transport's scratch memory; peers write into the first two.
struct RcQueueScratch {
  // A packet of the longest path MTU: a path that carries only shorter ones does not pass the probe.
  static constexpr size_t kProbeBytes = 4096;

  alignas(64) uint64_t taken;  // immediates of ours that the peer has taken
  alignas(64) std::byte probe_in[kProbeBytes];
  alignas(64) std::byte probe_out[kProbeBytes];
  // Values that are on their way follow, one for each entry of the send queue.
  static uint64_t bytes(uint32_t send_entries);
};

class RcQueue {
 public:
  struct Setup {
    const verbs::Verbs* verbs = nullptr;
    const verbs::Port* port = nullptr;
    const RcOptions* options = nullptr;
    verbs::abi::Pd* pd = nullptr;
    verbs::abi::Cq* cq = nullptr;
    uint32_t number = 0;  // of this queue in its transport: comes back in wr_id
    Rank peer;
    int32_t channel = 0;
    RcQueueScratch* scratch = nullptr;
    uint32_t scratch_key = 0;  // local
    std::string where{};
  };

  // Entries of a completion queue that a queue may fill.
  static uint32_t completion_entries(const RcOptions& options);
  // Entries that its send queue has beyond those for requests: reports of taken immediates, and a probe.
  static constexpr uint32_t kOwnEntries = 8;

  // Makes the queue pair and its receives. Throws Error(resource, unavailable).
  explicit RcQueue(const Setup& setup);

  RcQueueEnd end() const;
  Rank peer() const { return setup_.peer; }
  // Nothing is under way.
  bool is_idle() const { return completed_ == added_; }

  // To the state in which both sides can send. Throws Error(unavailable) with the step that failed.
  void connect(const RcAddress& peer, const RcQueueEnd& end);

  // Adds a request, or false where there is no room or the peer has none for its immediate. `pieces` has one at least
  // for a request that has bytes; for a value one without a source.
  bool try_add(const WriteRequest& request, std::span<const verbs::Piece> pieces);
  // Posts what was added.
  void flush(EventList& events);

  // A completion of this queue. Events of all requests that it settles are appended.
  void take_send(const verbs::abi::Wc& wc, EventList& events);
  void take_receive(const verbs::abi::Wc& wc, EventList& events);
  // Gives entries back for the immediates taken, and tells the peer now and then. Call it after completions.
  void renew_receives(EventList& events);

  // Writes a pattern and an immediate to the peer; has_probe() says whether the peer's pattern is here.
  void send_probe(EventList& events);
  bool has_probe() const;

  static constexpr uint64_t kReceiveBit = uint64_t{1} << 63;  // in wr_id
  static uint32_t number_of(uint64_t wr_id) { return static_cast<uint32_t>(wr_id >> 32) & 0x7fffffffu; }

 private:
  enum class FlightKind : uint8_t { part, end_of_request, own };
  struct Flight {
    uint64_t id = 0;
    FlightKind kind = FlightKind::part;
  };

  void make_queue_pair();
  void modify(verbs::abi::QpAttr& attr, int mask, const char* step);
  verbs::abi::AhAttr path_to(const RcAddress& peer) const;
  void post_receives(uint32_t count, EventList* events);
  uint32_t in_flight() const { return added_ - completed_; }
  bool has_room_for_immediate();
  verbs::abi::SendWr& chain(FlightKind kind, uint64_t id);
  void chain_piece(const verbs::Piece& piece, FlightKind kind, uint64_t id);
  void chain_value(uint64_t value, uint64_t dst, uint32_t dst_key, FlightKind kind, uint64_t id);
  void report_taken(EventList& events);
  void settle(uint32_t until, EventList& events);
  void fail_all(int32_t status, EventList& events);
  bool is_failed() const { return is_broken_ || is_flushed_; }
  uint64_t* value_slot(uint32_t sequence) const;

  Setup setup_;
  verbs::Qp qp_;
  bool has_inline_ = false;
  bool is_broken_ = false;
  int32_t cause_ = 0;        // is_broken_: of it
  bool is_flushed_ = false;  // its receives are, and why will be said by a request under way
  uint32_t first_psn_;

  // The peer's side.
  uint64_t peer_scratch_ = 0;
  uint32_t peer_scratch_key_ = 0;
  uint32_t peer_number_ = 0;  // of its queue pair

  // Sequence numbers of requests of the send queue. They wrap, soon after the start, so that no job is the first to see
  // it, days later.
  uint32_t added_ = UINT32_MAX - 1000;
  uint32_t completed_ = added_;
  std::vector<Flight> flights_;  // by sequence number, modulo its size, a power of two
  std::vector<verbs::abi::SendWr> chain_;
  std::vector<verbs::abi::Sge> chain_sges_;
  uint32_t chained_ = 0;  // of the last ones added: not posted yet

  verbs::SendCredits sent_;  // immediates
  verbs::TakenCount taken_;  // here, of the peer
  uint32_t to_renew_ = 0;
  std::vector<verbs::abi::RecvWr> receive_chain_;
};

}  // namespace tilewire

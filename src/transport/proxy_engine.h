// The work of a proxy, one step at a time, without its thread: takes commands from rings, checks them, turns them into
// requests, posts those within the credits, takes completions and arrivals, and publishes sent(e).
//
// Data of a command goes to the half of its ring's epoch; an engine learns epochs from call_end alone. A command's flag
// promises that command's own data and nothing about other commands.
//
// Thread-safety: one thread.
#pragma once

#include <tilewire/error.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "schedule/arena_layout.h"
#include "transport/arrival.h"
#include "transport/arrival_sink.h"
#include "transport/call_tracker.h"
#include "transport/command_check.h"
#include "transport/command_queue.h"
#include "transport/pending_requests.h"
#include "transport/proxy_counters.h"
#include "transport/request_table.h"
#include "transport/transport.h"
#include "transport/word_tails.h"

namespace tilewire {

enum class ProxyFaultKind : uint8_t {
  bad_command,     // a role asked for something out of range
  failed_request,  // the network gave up on a request
  failed_device,   // a device gave up without a request
  bad_event,       // the transport reported something that cannot be
  died,            // anything else that was thrown on the proxy thread
};

const char* to_string(ProxyFaultKind kind);

struct ProxyFault {
  ProxyFaultKind kind = ProxyFaultKind::died;
  std::optional<Rank> peer{};  // the rank it is about, where there is one
  std::string text{};
};

class ProxyFaultError : public Error {
 public:
  ProxyFaultError(ProxyFaultKind kind, std::optional<Rank> peer, ErrorKind error_kind, ErrorParts parts)
      : Error(error_kind, std::move(parts)), fault{kind, peer, what()} {}

  ProxyFault fault;
};

struct ProxyConfig {
  Rank rank;
  ArenaLayout layout;
  std::byte* control_page = nullptr;  // sent(e) is published there: the own arena, or host memory beside a GPU's
  uint64_t half_bytes = 0;            // committed of each half, see Proxy::set_committed
  uint64_t user_bytes = 0;            // committed of the user area
  std::vector<Rank> peers{};          // the ranks this rank may send to
  std::vector<RingMemory> rings{};    // all there will ever be; one at least
  Epoch first_epoch = 1;              // number of the first call
  ArrivalSink* arrivals = nullptr;    // needed for the strategy *counted*
  // Where network cards write into the memory of a GPU: flushed before arrivals are told.
  const NicAccess* gpu_memory = nullptr;
  // A peer that has left in order misses no report of what has come from it, and has had all that it waited for of a call
  // that it was told this rank is done with: an acknowledgement alone was lost. One that has not said that it leaves within
  // that time after a write to it failed is there, and that is a fault. Empty: nobody leaves.
  std::function<bool(Rank)> has_left{};
  std::chrono::nanoseconds leaving_time{0};
  // One that has not said either that it is done with the call is in it; so long its word may be on its way through here.
  std::chrono::nanoseconds hearing_time{0};
  // The own words, where the host can read them: some come without an arrival.
  const std::byte* words = nullptr;
};

class ProxyEngine {
 public:
  static constexpr size_t kPostBatch = 64;  // requests that a transport is offered at once

  // `transport`, `counters` and `committed` must outlive the engine; the transport is connected.
  // Throws Error(invalid_argument) for a bad configuration, Error(unavailable) as choose_arrival does.
  ProxyEngine(const ProxyConfig& config, Transport& transport, const CommittedBytes& committed,
              ProxyCounters& counters);

  const ArrivalChoice& arrival() const { return arrival_; }

  // One round; true when anything moved. Throws ProxyFaultError and what the transport throws; after that only
  // discard() may be called.
  bool step();
  // Takes whatever is in the rings and drops it; true when there was something.
  bool discard() noexcept;

  // Nothing taken from the rings is waiting or in flight.
  bool is_idle() const { return table_.is_empty() && held_arrivals_.empty(); }

 private:
  struct Ring {
    CommandConsumer consumer;
  };

  bool take_commands();
  bool take_from(size_t ring);
  void accept(size_t ring, const Command& command);
  void enqueue_write(const Command& command, Epoch epoch);
  void enqueue_signal(const Command& command, Epoch epoch);
  void enqueue(const WriteRequest& request, Epoch epoch, uint32_t word);
  void wait_to_post(uint32_t slot);
  // after_completion: one request a word at a time, so that an older epoch never overtakes a newer one.
  void enqueue_in_word_order(const WriteRequest& request, Epoch epoch, uint32_t word);
  WriteRequest flag_request(Rank peer, uint32_t word, Epoch epoch) const;
  bool post_pending();
  void count_posted(const WriteRequest& request);
  bool take_events();
  void take_event(const Event& event);
  void complete(const Event& event);
  void finish(uint32_t slot);
  void arrive(const Event& event);
  void miss(const Event& event);
  void doubt(const Event& event, std::optional<uint32_t> slot);
  bool judge_doubts();
  Epoch heard_done(Rank peer) const;
  bool retry_arrivals();
  size_t position_of(Rank peer) const;
  PeerCounters& peer_counters(Rank peer);
  std::string where() const;
  [[noreturn]] void fail_command(size_t ring, const Command& command, CommandField field) const;
  [[noreturn]] void fail_request(const Event& event) const;
  [[noreturn]] void fail_event(const Event& event, const char* what, std::string limit) const;

  Rank rank_;
  ArenaLayout layout_;
  std::byte* control_page_;
  Transport& transport_;
  ProxyCounters& counters_;
  ArrivalSink* sink_;
  const NicAccess* flushed_memory_;  // where arrivals need a flush
  ArrivalChoice arrival_;
  CommandCheck check_;
  std::vector<int32_t> peer_positions_;
  std::vector<Ring> rings_;
  CallTracker calls_;
  RequestTable table_;
  uint32_t slots_per_command_;
  size_t next_ring_ = 0;
  bool is_credit_stalled_ = false;
  bool is_post_refused_ = false;
  PendingRequests pending_;
  std::array<uint32_t, kPostBatch> batch_slots_{};
  std::array<WriteRequest, kPostBatch> batch_{};
  WordTails last_of_word_;  // after_completion: newest slot of a word in hand
  std::deque<Arrival> held_arrivals_;
  Epoch newest_arrival_ = 0;
  // Its peer may still turn out to have left.
  struct Doubt {
    Event event;
    std::optional<uint32_t> slot;  // of a request
    std::chrono::steady_clock::time_point since;
  };
  std::chrono::nanoseconds time_of(const Doubt& doubt);
  std::vector<Doubt> doubts_;
  std::vector<Epoch> said_done_;     // by position: the last call that a peer has been told this rank is done with
  std::vector<Epoch> arrived_done_;  // by position: the last call that a peer has told this rank it is done with
  const std::byte* words_;
  std::function<bool(Rank)> has_left_;
  std::chrono::nanoseconds leaving_time_;
  std::chrono::nanoseconds hearing_time_;
};

}  // namespace tilewire

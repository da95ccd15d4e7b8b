// The one interface between the proxy and a network. A transport moves bytes from this rank's registered arena into the
// arenas of ranks on other nodes. It knows nothing of ops, tiles or calls.
//
// Life: made by the registry, register_arena() for each range, address(), connect() with everybody's addresses,
// check_paths(), then post() and poll() by the proxy thread until close().
//
// Thread-safety: register_arena, unregister_arena, new_keys and learn_keys may also be called while the proxy runs (the
// arena grows between calls); address, connect, check_paths and close before the proxy starts or after it stopped; post,
// poll, look_at_devices and idle_hint by the proxy thread alone.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "transport/nics/rank_place.h"

namespace tilewire {

// What differs between networks. Arrival strategies are chosen from this, once, the same on all ranks.
struct Caps {
  std::string name{};
  bool ordered_writes = false;        // a write becomes visible to the peer after all earlier writes to it
  bool value_writes = false;          // RequestKind::write_value works: 8 bytes, never torn
  bool write_with_immediate = false;  // a write can carry 32 bits that appear at the receiver once its data is visible
  uint32_t max_outstanding = 0;       // requests posted and not yet completed, over all peers
  uint64_t max_write_bytes = std::numeric_limits<uint64_t>::max();  // longest single request
};

enum class RequestKind : uint8_t {
  write,                 // bytes from my arena to the peer's arena
  write_with_immediate,  // the same, and `immediate` arrives at the receiver after the data; bytes may be 0
  write_value,           // the 8 bytes of `value` to dst_offset; aligned, never torn
};

struct WriteRequest {
  RequestKind kind = RequestKind::write;
  Rank peer;
  uint64_t src_offset = 0;  // into my arena
  uint64_t dst_offset = 0;  // into the peer's arena
  uint64_t bytes = 0;
  uint64_t value = 0;      // write_value
  uint32_t immediate = 0;  // write_with_immediate
  uint64_t id = 0;         // comes back in the completion

  // A request that moves a signal and no data.
  bool is_control() const { return kind == RequestKind::write_value || bytes == 0; }
};

enum class EventKind : uint8_t {
  completed,   // request `id`: source may be reused and the data has landed at the peer
  failed,      // request `id` failed for good; `status` says how
  own_failed,  // a write of the transport's own to `peer` did, a report of credits: of no matter if the peer has left
  arrived,     // a write with immediate from `peer` has landed here, data first
};

struct Event {
  EventKind kind = EventKind::completed;
  Rank peer;  // always set: where the request went, or where the immediate came from
  uint64_t id = 0;
  uint32_t immediate = 0;
  int32_t status = 0;  // failed, own_failed: a back end's own code, see describe_failure
  uint8_t nic = 0;     // where a rank has several
};

class NicAccess;    // memory/nic_access.h
struct LocalReach;  // transport/emulated/local_reach.h

// What a transport needs to be made. All ranks use the same options.
struct TransportContext {
  Rank rank;
  int32_t ranks = 0;
  std::vector<Rank> peers{};   // the ranks of other nodes this rank exchanges data or signals with, both directions
  std::byte* arena = nullptr;  // base of the reserved range; offsets in requests count from here
  uint64_t arena_bytes = 0;    // length of the reserved range, the same on all ranks
  uint64_t strict_bytes = 0;   // what lies before this offset is words: never written in a relaxed order
  int32_t local = 0;           // number of this rank on its node: ranks of a node take devices in turn,
  // unless it is known where the ranks of this host are: then each takes those near it. In order of ranks.
  std::vector<RankPlace> host_ranks{};
  size_t host_index = 0;                          // of this rank in it
  size_t arena_pieces = 1;                        // calls of register_arena() before connect()
  std::shared_ptr<const NicAccess> gpu_memory{};  // where the arena is in the memory of a GPU
  // For a transport that plays a network between ranks of one machine; null where there is no such way.
  std::shared_ptr<const LocalReach> local_reach{};
};

// How long a collective step may take, and what else ends it.
struct StepLimit {
  std::chrono::nanoseconds deadline{};
  std::function<void()>
      poll{};  // called meanwhile: throws where the step is in vain, as when a rank has died. May be empty
};

// What a report of trouble needs to say of a NIC: ("firmware", "28.39.1002").
using NicFacts = std::vector<std::pair<std::string, std::string>>;

struct NicInfo {
  std::string name;  // "mlx5_0:1"
  double gbps = 0;   // its rate; 0: unknown
  NicFacts facts{};
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const Caps& caps() const = 0;
  // Makes [begin, begin + bytes) of the arena usable as source and destination. May be called again as the arena grows.
  // Throws Error(resource).
  virtual void register_arena(uint64_t begin, uint64_t bytes) = 0;
  // Takes back a register_arena() of just that range whose keys nobody has asked for yet: of a NIC, where another one of
  // the rank has refused the same. Back ends that can be one of several have it.
  virtual void unregister_arena(uint64_t /*begin*/, uint64_t /*bytes*/) {}
  // What peers need to reach this rank, exchanged by the bootstrap; then connect() with the addresses of all ranks.
  virtual std::vector<std::byte> address() = 0;
  // Collective among all ranks. Throws Error(mismatch) for an address that is no address of this transport,
  // Error(deadline) and what it needs of its context throws.
  virtual void connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) = 0;
  // Collective, once connect() has returned on all ranks: each path carries something both ways. No post() before it has
  // returned on all ranks. Throws Error(deadline, unavailable) with the peer, and what `limit.poll` throws.
  virtual void check_paths(const StepLimit& /*limit*/) {}
  // For ranges registered after address() was called: what peers need to write there; and that of all ranks, by rank.
  // Like register_arena() they may be called while the proxy runs.
  virtual std::vector<std::byte> new_keys() { return {}; }
  virtual void learn_keys(std::span<const std::vector<std::byte>> /*by_rank*/) {}
  // Takes a prefix of `requests` and returns how long it is: fewer than all is back-pressure, not an error. Never
  // blocks. A range that was not registered here, or lies outside the peer's arena, is an Error(invalid_argument) that
  // names it; requests before it were taken.
  virtual size_t post(std::span<const WriteRequest> requests) = 0;
  // Moves things on and fills `events`; returns how many. Never blocks.
  virtual size_t poll(std::span<Event> events) = 0;
  // Whether the devices have said that they have failed, where no request may ever tell: now and then, and not where every
  // microsecond counts, since it calls the system. Throws Error(unavailable) that names the device; for a port that is
  // down once it has been so for `patience`.
  virtual void look_at_devices(std::chrono::nanoseconds /*patience*/) {}
  // How long poll() surely has nothing new, as far as this side knows; zero when it should be called at once.
  virtual std::chrono::nanoseconds idle_hint() const { return std::chrono::nanoseconds::max(); }
  virtual std::string describe_status(int32_t status) const = 0;
  // Of an event that is `failed`: the same, and where it failed.
  virtual std::string describe_failure(const Event& event) const { return describe_status(event.status); }
  // What it sends through, where that is something.
  virtual std::vector<NicInfo> nics() const { return {}; }
  // Processors near the device that it drives, where the proxy's thread belongs; empty: no matter.
  virtual std::vector<int> near_processors() const { return {}; }
  // Of the fault transport: how often each fault of its script has come so far. From any thread.
  virtual std::vector<uint64_t> faults_come() const { return {}; }
  // Ends all traffic without help of a peer and frees what was registered. Idempotent, bounded. Requests in flight are
  // dropped; post() and poll() then do nothing.
  virtual void close() noexcept = 0;
};

}  // namespace tilewire

// The one interface between the proxy and a network. A transport moves bytes from this rank's registered arena into the
// arenas of ranks on other nodes. It knows nothing of ops, tiles or calls.
//
// Thread-safety: register_arena, connect and close are called before the proxy starts or after it stopped; post and poll
// by the proxy thread alone.
#pragma once

#include <tilewire/error.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace tilewire {

// What differs between networks. Arrival strategies are chosen from this, once, the same on all ranks.
struct Caps {
  std::string name{};
  bool ordered_writes = false;    // a write becomes visible to the peer after all earlier writes to it on this path
  bool write_with_immediate = false;  // a write can carry 32 bits that appear at the receiver once its data is visible
  uint32_t max_outstanding = 0;   // requests posted and not yet completed, over all peers
  uint64_t max_write_bytes = 0;   // longest single request
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
  uint64_t value = 0;       // write_value
  uint32_t immediate = 0;   // write_with_immediate
  uint64_t id = 0;          // comes back in the completion
};

enum class EventKind : uint8_t {
  completed,  // request `id`: source may be reused and the data has landed at the peer
  failed,     // request `id` failed for good; `peer` and `status` say how
  arrived,    // a write with immediate from `peer` has landed here, data first
};

struct Event {
  EventKind kind = EventKind::completed;
  Rank peer;
  uint64_t id = 0;
  uint32_t immediate = 0;
  int32_t status = 0;  // failed: a back end's own code, see describe_status
};

// What a transport needs to be made. All ranks use the same options.
struct TransportContext {
  Rank rank;
  int32_t ranks = 0;
  std::vector<Rank> peers;     // the ranks of other nodes this rank exchanges data or signals with, both directions
  std::byte* arena = nullptr;  // base of the reserved range; offsets in requests count from here
  uint64_t arena_bytes = 0;    // length of the reserved range
  std::vector<int> peer_arena_fds;  // emulated only: by rank, -1 where there is none (one machine plays several nodes)
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual const Caps& caps() const = 0;
  // Makes [begin, begin + bytes) of the arena usable as source and destination. May be called again as the arena grows.
  // Throws Error(resource).
  virtual void register_arena(uint64_t begin, uint64_t bytes) = 0;
  // What peers need to reach this rank, exchanged by the bootstrap; then connect() with the addresses of all ranks.
  virtual std::vector<std::byte> address() = 0;
  virtual void connect(std::span<const std::vector<std::byte>> addresses, std::chrono::nanoseconds deadline) = 0;
  // Takes a prefix of `requests` and says how long it is: fewer than all is back-pressure, not an error.
  virtual size_t post(std::span<const WriteRequest> requests) = 0;
  // Moves things on and fills `events`; returns how many. Never blocks.
  virtual size_t poll(std::span<Event> events) = 0;
  // How long poll() surely has nothing new, as far as this side knows; zero when it should be called at once.
  virtual std::chrono::nanoseconds idle_hint() const { return std::chrono::nanoseconds::max(); }
  virtual std::string describe_status(int32_t status) const = 0;
  // Ends all traffic without help of a peer and frees what was registered. Idempotent, bounded.
  virtual void close() noexcept = 0;
};

}  // namespace tilewire

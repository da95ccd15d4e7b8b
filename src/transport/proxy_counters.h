// What a proxy has moved so far. Written by the proxy thread, read by anyone.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace tilewire {

// A counter with one writer: adding needs no locked instruction.
class Counter {
 public:
  void add(uint64_t n) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Totals since creation, as read at one moment (each field by itself).
struct PeerTotals {
  Rank peer;
  uint64_t commands = 0;    // taken from rings: writes and signals
  uint64_t requests = 0;    // taken by the transport
  uint64_t data_bytes = 0;  // of those, payload
  uint64_t arrivals = 0;    // immediates that came from this peer
};

struct ProxyTotals {
  std::vector<PeerTotals> peers{};
  uint64_t commands = 0;  // all, call_end included
  uint64_t completions = 0;
  uint64_t post_refusals = 0;  // times the transport took fewer requests than it was offered
  uint64_t credit_stalls = 0;  // times rings had to wait because all credits were out
  uint64_t sink_refusals = 0;  // times the arrival sink had no room
  uint64_t naps = 0;

  // Payload over all peers.
  uint64_t data_bytes() const {
    uint64_t sum = 0;
    for (const PeerTotals& p : peers) sum += p.data_bytes;
    return sum;
  }
};

struct PeerCounters {
  Counter commands;
  Counter requests;
  Counter data_bytes;
  Counter arrivals;
};

struct ProxyCounters {
  explicit ProxyCounters(size_t peer_count) : peers(peer_count) {}

  ProxyTotals totals(const std::vector<Rank>& ranks) const {
    ProxyTotals t{.commands = commands.value(),
                  .completions = completions.value(),
                  .post_refusals = post_refusals.value(),
                  .credit_stalls = credit_stalls.value(),
                  .sink_refusals = sink_refusals.value(),
                  .naps = naps.value()};
    for (size_t i = 0; i < peers.size(); ++i) {
      const PeerCounters& p = peers[i];
      t.peers.push_back({ranks[i], p.commands.value(), p.requests.value(), p.data_bytes.value(), p.arrivals.value()});
    }
    return t;
  }

  std::vector<PeerCounters> peers;
  Counter commands;
  Counter completions;
  Counter post_refusals;
  Counter credit_stalls;
  Counter sink_refusals;
  Counter naps;
};

}  // namespace tilewire

// What the way from one rank to another is like, measured as calls use it: commands through a ring and the proxy, chunks
// over the network, words that the receiver waits for.
//
// Every measure is collective among the ranks of the session; those that it is not about go along with its epochs. Host
// memory alone.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/session.h"
#include "memory/wait.h"

namespace tilewire {

struct LinkLatency {
  double median_us = 0;  // half a round trip of a signal
  double p99_us = 0;
};

struct LinkChecks {
  uint64_t messages = 0;
  uint64_t wrong = 0;  // of those, not whole when their word was there
};

class LinkProbe {
 public:
  // Chunks of one epoch. The session has words and memory for them.
  static constexpr int32_t kChunks = 256;
  static constexpr int64_t kMostBytes = int64_t{16} << 20;  // of an epoch

  // Throws Error(invalid_argument) for a session of GPU ranks.
  explicit LinkProbe(Session& session);

  LinkLatency latency(Rank from, Rank to, int rounds);
  // Gbit/s of chunks of that size, over about `seconds`.
  double bandwidth_gbps(Rank from, Rank to, int64_t chunk_bytes, double seconds);
  // Messages of `bytes`, a multiple of 16: each word of each has a value of its own, and the receiver looks at all of them
  // as soon as the message's word is there.
  LinkChecks ordering(Rank from, Rank to, uint64_t messages, int64_t bytes);

 private:
  struct Batch {
    int32_t chunks = 0;
    int64_t chunk_bytes = 0;
    uint64_t seed = 0;  // of contents; 0: they do not matter
  };

  Rank me() const { return session_.rank(); }
  void meet(Epoch& epoch);
  Epoch begin();
  void end(Epoch e);
  void post(Ring ring, const Command& command);
  template <class Ready>
  void wait(Ready&& ready, const char* what, Rank peer);
  void wait_word(Rank source, Chunk chunk, Epoch e);
  void wait_sent(Epoch e);
  void signal(Rank to, Chunk chunk);
  void send(Rank to, Epoch e, const Batch& batch);
  uint64_t receive(Rank from, Epoch e, const Batch& batch);
  double time_epochs(Rank from, Rank to, const Batch& batch, uint64_t epochs);
  // What `mine` is on that rank, on all ranks.
  uint64_t told_by(Rank rank, uint64_t mine);

  Session& session_;
  HostWaiter waiter_;
};

}  // namespace tilewire

// What the way from one rank to another is like, measured as calls use it: commands through a ring and the proxy, chunks
// over the network, words that the receiver waits for. Between GPU ranks kernels do all that, and read what arrives.
//
// Every measure is collective among the ranks of the session; those that it is not about go along with its epochs.
#pragma once

#include <cstdint>
#include <memory>

#include "executor/link/link_side.h"
#include "executor/session.h"

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

  // Throws Error(unavailable) for a session of GPU ranks without a kernel.
  explicit LinkProbe(Session& session, const LinkKernelMaker& make_kernel = {});

  LinkLatency latency(Rank from, Rank to, int rounds);
  // Gbit/s of chunks of that size, over about `seconds`.
  double bandwidth_gbps(Rank from, Rank to, int64_t chunk_bytes, double seconds);
  // Messages of `bytes`, a multiple of 16: each word of each has a value of its own, and the receiver looks at all of them
  // as soon as the message's word is there.
  LinkChecks ordering(Rank from, Rank to, uint64_t messages, int64_t bytes);

 private:
  LinkOutcome run(const LinkSeries& series);
  // What `mine` is on that rank, on all ranks.
  uint64_t told_by(Rank rank, uint64_t mine);

  Session& session_;
  std::unique_ptr<LinkSide> side_;
};

}  // namespace tilewire

// What the link test has two ranks do with each other, on CPUs or by kernels: a series of epochs, in each of which one
// sends chunks and the other one looks at them and answers. Further ranks go along with the epochs.
#pragma once

#include "device/comm/device_rank.h"
#include "schedule/call_roles.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tilewire {

struct LinkSeries {
  Rank from{};
  Rank to{};
  uint64_t epochs = 0;
  int32_t chunks = 0;       // of an epoch; 0: a signal there and one back
  int64_t chunk_bytes = 0;  // a multiple of kWireUnitBytes
  uint64_t seed = 0;        // of contents; 0: they do not matter
};

struct LinkOutcome {
  uint64_t ns = 0;                  // of the sender: all epochs, to the last answer
  std::vector<uint64_t> trip_ns{};  // of the sender, where there are no chunks: there and back, by epoch
  uint64_t wrong = 0;               // of the receiver: messages that were not whole when their word was there
  bool has_given_up = false;        // a kernel that has left a fault record, or heard of an abort
};

// Word `i` of chunk `c` of epoch `e`: no two of a run are alike.
TILEWIRE_HD constexpr uint64_t link_content(uint64_t seed, Epoch e, int32_t c, int64_t i) {
  uint64_t x = seed + e * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(c) * 0xbf58476d1ce4e5b9 + static_cast<uint64_t>(i);
  x = (x ^ (x >> 31)) * 0x94d049bb133111eb;
  return x ^ (x >> 29);
}

// The word by which `source` says that its chunk is there; that of the first chunk is its answer, too.
TILEWIRE_HD constexpr uint32_t link_word(const CallFrame& frame, Rank source, int32_t c) {
  return frame.arena.flags.chunk(0, source, Chunk{c});
}

// Chunk `c`, which lies at the same place of the half on both sides.
TILEWIRE_HD constexpr Command link_write(const CallFrame& frame, const LinkSeries& series, int32_t c) {
  const auto units = static_cast<uint32_t>(series.chunk_bytes / kWireUnitBytes);
  const uint64_t at = static_cast<uint64_t>(c) * units;
  return {.kind = CommandKind::write,
          .peer = series.to,
          .word = link_word(frame, frame.me, c),
          .units = units,
          .src_unit = at,
          .dst_unit = at};
}
TILEWIRE_HD constexpr Command link_signal(const CallFrame& frame, Rank to) {
  return {.kind = CommandKind::signal, .peer = to, .word = link_word(frame, frame.me, 0)};
}

// One rank's part by a kernel on the current GPU; returns when it has ended. Throws what CUDA says.
using LinkKernel = std::function<LinkOutcome(const LinkSeries&)>;
// With all that its launches need, for other ranks' kernels may run whenever one is launched. The epoch of the rank is its
// alone as long as it is there. Its roles have these numbers in faults.
using LinkKernelMaker = std::function<LinkKernel(const DeviceRank&, const CallFrame&)>;
constexpr const char* kLinkRoles[] = {"sender", "receiver", "onlooker"};

// The real one (link_kernel.cu).
LinkKernel make_link_kernel(const DeviceRank& rank, const CallFrame& frame);

}  // namespace tilewire

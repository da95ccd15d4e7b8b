// THE list of flags and buffers of AllGather+GEMM. Sizes, offsets, the dump of a stuck call and the tables of the
// README follow from it.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "schedule/arena_layout.h"
#include "schedule/chunk_map.h"

namespace tilewire::ag_gemm {

// Word families (see FlagLayout::chunk).
//   shard_arrived(s, c)  chunk c of rank s's shard lies in this rank's gathered buffer
//                        written by: s itself inside a node (own push role for s = me); on the rail entry rank by the
//                        network; elsewhere by the entry rank's forward role
//                        read by: compute, send (own shard), forward (entry rank), drain
inline constexpr int32_t kShardArrived = 0;
inline constexpr int32_t kFamilies = 1;
static_assert(kFamilies <= kWordFamilies, "a rank has fewer word families: raise kWordFamilies");
inline constexpr const char* kFamilyNames[kWordFamilies] = {"shard_arrived"};  // for errors and dumps

// Buffers in a half, behind the call records.
//   gathered  [total rows, pitch]  all shards in rank order; row pitch is K elements rounded up to 16 bytes
struct Buffers {
  ArenaLayout arena;
  int64_t pitch_bytes = 0;

  TILEWIRE_HD constexpr uint32_t shard_arrived(ChunkRef c) const {
    return arena.flags.chunk(kShardArrived, c.source, c.chunk);
  }
  // From the start of the half.
  TILEWIRE_HD constexpr int64_t gathered_offset(int64_t row) const { return arena.data_offset() + row * pitch_bytes; }
  // What a call needs of each half. Throws Error(resource) when that does not fit 64 bits.
  constexpr int64_t half_bytes(int64_t total_rows) const {
    return checked_add(arena.data_offset(), checked_mul(total_rows, pitch_bytes));
  }
};

}  // namespace tilewire::ag_gemm

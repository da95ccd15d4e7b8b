// Strong integer ids. A rank is not a node is not a chunk; the compiler keeps them apart, on the host and on the GPU.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define TILEWIRE_HD __host__ __device__
#else
#define TILEWIRE_HD
#endif

namespace tilewire {

template <class Tag>
struct Id {
  int32_t value = 0;

  constexpr Id() = default;
  TILEWIRE_HD explicit constexpr Id(int32_t v) : value(v) {}

  friend TILEWIRE_HD constexpr bool operator==(Id a, Id b) { return a.value == b.value; }
  friend TILEWIRE_HD constexpr bool operator!=(Id a, Id b) { return a.value != b.value; }
  friend TILEWIRE_HD constexpr bool operator<(Id a, Id b) { return a.value < b.value; }
};

using Rank = Id<struct RankTag>;            // 0 .. world size - 1
using Node = Id<struct NodeTag>;            // 0 .. nodes - 1
using LocalRank = Id<struct LocalRankTag>;  // 0 .. ranks of the node - 1
using Chunk = Id<struct ChunkTag>;          // number of a chunk within one source of one call
using Tile = Id<struct TileTag>;            // number of an output tile within one call

using Epoch = uint64_t;  // number of a call on its communicator, from 1; 0 means "never"

}  // namespace tilewire

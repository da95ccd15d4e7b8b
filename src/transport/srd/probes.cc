#include "transport/srd/probes.h"

#include "transport/verbs/path_check.h"

namespace tilewire {

SrdProbes::SrdProbes(const verbs::Verbs& verbs, verbs::abi::Pd* pd, size_t ranks, size_t channels,
                     const std::string& where)
    : ranks_(ranks), channels_(channels), right_(ranks), memory_(verbs, pd, 2 * ranks * channels * kBytes, where) {}

verbs::Piece SrdProbes::fill(Rank to, size_t channel, Rank me, uint32_t own_queue, const SrdPath& path) {
  std::byte* pattern = memory_.base() + place_out(to, channel);
  for (size_t i = 0; i < kBytes; ++i) pattern[i] = verbs::probe_byte(i, own_queue, path.target.queue);
  return {.src = reinterpret_cast<uint64_t>(pattern),
          .dst = path.nothing.dst + place_in(me, channel),
          .src_key = lkey(),
          .dst_key = path.nothing.dst_key,
          .bytes = kBytes};
}

void SrdProbes::take(Rank from, size_t channel, uint32_t peer_queue, uint32_t own_queue) {
  const std::byte* pattern = memory_.base() + place_in(from, channel);
  for (size_t i = 0; i < kBytes; ++i) {
    if (pattern[i] != verbs::probe_byte(i, peer_queue, own_queue)) return;
  }
  ++right_[static_cast<size_t>(from.value)];
}

}  // namespace tilewire

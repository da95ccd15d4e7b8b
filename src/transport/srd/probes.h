// The patterns of the self-test of paths: memory that each peer writes one into for each channel, and where the own ones
// wait. Its start is also the piece of memory that immediates alone are said to come from and go to.
//
// Thread-safety: one thread.
#pragma once

#include <string>
#include <vector>

#include "transport/srd/lane.h"
#include "transport/verbs/memory.h"

namespace tilewire {

class SrdProbes {
 public:
  SrdProbes() = default;
  // Throws Error(resource).
  SrdProbes(const verbs::Verbs& verbs, verbs::abi::Pd* pd, size_t ranks, size_t channels, const std::string& where);

  uint64_t address() const { return reinterpret_cast<uint64_t>(memory_.base()); }
  uint32_t lkey() const { return memory_.lkey(); }
  uint32_t rkey() const { return memory_.rkey(); }

  // The pattern for that channel of rank `to`, written by the queue pair `own_queue` of rank `me`.
  verbs::Piece fill(Rank to, size_t channel, Rank me, uint32_t own_queue, const SrdPath& path);
  // While they are, each arrival is that of a probe.
  void expect(bool expected) { are_expected_ = expected; }
  bool are_expected() const { return are_expected_; }
  // Its immediate is here, so the pattern has to be.
  void take(Rank from, size_t channel, uint32_t peer_queue, uint32_t own_queue);
  bool are_right(Rank from) const { return right_[static_cast<size_t>(from.value)] == channels_; }
  void reset() noexcept { memory_.reset(); }

 private:
  static constexpr size_t kBytes = 64;

  size_t place_in(Rank from, size_t channel) const {
    return (static_cast<size_t>(from.value) * channels_ + channel) * kBytes;
  }
  size_t place_out(Rank to, size_t channel) const { return ranks_ * channels_ * kBytes + place_in(to, channel); }

  size_t ranks_ = 0;
  size_t channels_ = 0;
  bool are_expected_ = false;
  std::vector<size_t> right_;  // by rank
  verbs::ScratchMemory memory_;
};

}  // namespace tilewire

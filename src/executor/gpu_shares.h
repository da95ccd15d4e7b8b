// What the ranks of a communicator take of their GPUs, as all of them know it: who shares one, whether its SMs suffice for
// all, and whether a roll-call has found them all there at once. Immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "device/sync/roll_call.h"
#include "executor/gpu_rank.h"
#include "memory/gpu_id.h"
#include "transport/bootstrap/control.h"

namespace tilewire {

class GpuShares {
 public:
  // Collective: every rank brings its own. `gpu` is this rank's, and outlives this.
  GpuShares(ControlConnection& control, const GpuRank& gpu, SteadyTime deadline);

  std::vector<Rank> ranks_on(const GpuId& gpu) const;
  // Those on this rank's own.
  std::vector<Rank> ranks_here() const { return ranks_on(gpu_.id()); }
  int32_t most_ranks_on_a_gpu() const;
  bool is_any_shared() const { return most_ranks_on_a_gpu() > 1; }
  // CTAs of a rank's grid in a roll-call: kernels take SMs in pairs.
  int32_t roll_call_ctas(Rank rank) const;

  // Throws Error(unavailable, invalid_argument) unless the kernels of all ranks on this rank's GPU can run at once.
  // `wire_ctas`: of the wire, where it is on that GPU.
  void check(int32_t wire_ctas) const;
  // Throws Error(unavailable) that says who came unless all did. `expected`: CTAs of the ranks of this GPU, in their
  // order, and of the wire where it is there.
  void check_roll_call(const RollCallPage& page, std::span<const int32_t> expected) const;

 private:
  struct Share {
    GpuId gpu{};
    int32_t sms = 0;
    bool has_mps = false;
  };
  const Share& of(Rank rank) const { return shares_[static_cast<size_t>(rank.value)]; }

  Rank rank_;
  const GpuRank& gpu_;
  std::vector<Share> shares_;  // by rank
};

}  // namespace tilewire

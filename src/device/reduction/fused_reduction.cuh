// What the fused kernels of ops that sum products over ranks are alike: all CTAs compute, in clusters of the form that take
// works when they are free (device/tile/deal.cuh), and a tile goes from the epilogue into slots; what adds up and speaks for the rank stands beside it.
//
// Parameters are the op's: a, b, schedule, call, reduction, stages_per_tile.
#pragma once

#include "device/comm/rank_warps.cuh"
#include "device/reduction/partial_tiles.cuh"
#include "device/tile/gemm_kernel.cuh"

namespace tilewire {

// What the warps of a CTA do beside its tiles, but for run(warp), which is the op's.
template <class Form, class Parameters, int32_t kComputeRole>
class BesideTiles {
 public:
  TILEWIRE_DEVICE BesideTiles(const Parameters& p, const CallSpace& space, const SharedTiles<Form>& shared)
      : p_(p), space_(space), finish_(shared.spare()), deal_(shared.spare() + CtaFinish::kSharedBytes) {
    static_assert(CtaFinish::kSharedBytes + DealRing::kSharedBytes <= Form::kSpareBytes);
    static_assert(DealRing::kFits<Form::kStages>);
  }

  TILEWIRE_DEVICE void init() const {
    finish_.init();
    deal_.init(blockIdx.x / FormPlan<Form>::kClusterCtas);
  }
  TILEWIRE_DEVICE DealRing deal() const { return deal_; }
  TILEWIRE_DEVICE void computed() const { finish_.arrive(); }
  TILEWIRE_DEVICE TileTrace trace(uint32_t group) const { return {space_, group, kComputeRole}; }

 protected:
  const Parameters& p_;
  const CallSpace& space_;
  CtaFinish finish_;
  DealRing deal_;
};

// The whole kernel. Beside<Form>: see above.
template <class Config, int32_t kComputeRole, template <class> class Beside, class Parameters>
TILEWIRE_DEVICE void run_reduction(const Parameters& p) {
  using Form = typename Config::Form;
  extern __shared__ __align__(1024) uint8_t memory[];
  ptx::wait_for_kernel_before();
  const CallSpace space(p.schedule.frame, p.call);
  const SharedTiles<Form> shared(memory);
  const Beside<Form> beside(p, space, shared);
  const DealtRole<TakenRole<TileWork>, FormPlan<Form>::kClusterCtas, false> role(TakenRole<TileWork>(p.reduction.tiles),
                                                                                 p.reduction.dealt, beside.deal());
  run_gemm_roles<Config>(shared, PartialTileMaps<Form>(p.a, p.b, space, p.reduction), role,
                         CallGate(space, kComputeRole, kTilePauseNs), p.stages_per_tile, WireEpilogue(p.reduction),
                         beside);
}

}  // namespace tilewire

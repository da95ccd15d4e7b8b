#include "ops/gemm_ar/device_launch.cuh"

#include "ops/gemm_ar/device_entries.h"
#include "ops/gemm_ar/device_parameters.cuh"
#include "reduction/fused_reduction_kernel.cuh"

#include <array>

namespace tilewire::gemm_ar {

constexpr std::array kEntries = {
    FormEntry{FusedPlan::kForms[0], fused_cooperative_128x256},
    FormEntry{FusedPlan::kForms[1], fused_ping_pong_64x128},
};

struct KernelOp::Own {
  GatherView gather;

  void place(DeviceTables& device, const Schedule& s) {
    size_t works = 0;
    const auto count_works = [&](auto forward) {
      for (typename decltype(forward)::Work w; forward.next(w);) ++works;
    };
    s.is_one_shot ? count_works(one_shot::ForwardRole(s)) : count_works(ForwardRole(s));
    device.place_zeroed(gather.forwarded, works);
    device.place_zeroed(gather.collected, s.is_one_shot ? 0 : static_cast<size_t>(s.map.total_chunks()));
  }
  void give(FusedParameters& p) const { p.gather = gather; }
};

std::span<const FormEntry> KernelOp::entries() { return kEntries; }

// In one shot every rank of the node has a slot for every chunk.
std::vector<int32_t> KernelOp::source_slots(const Schedule& s) {
  if (s.is_one_shot) return std::vector<int32_t>(static_cast<size_t>(s.width()), s.map.total_chunks());
  return {s.map.source_slots, s.map.source_slots + s.width()};
}

}  // namespace tilewire::gemm_ar

template class tilewire::FusedKernelOf<tilewire::ReductionKernelTypes<tilewire::gemm_ar::KernelOp>>;

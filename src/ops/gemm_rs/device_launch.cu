#include "ops/gemm_rs/device_launch.cuh"

#include "ops/gemm_rs/device_entries.h"
#include "ops/gemm_rs/device_parameters.cuh"
#include "ops/gemm_rs/work_lists.h"
#include "reduction/fused_reduction_kernel.cuh"

#include <array>

namespace tilewire::gemm_rs {

constexpr std::array kEntries = {
    FormEntry{FusedPlan::kForms[0], fused_cooperative_128x256},
    FormEntry{FusedPlan::kForms[1], fused_ping_pong_128x128},
    FormEntry{FusedPlan::kForms[2], fused_ping_pong_64x128},
};

struct KernelOp::Own {
  static void place(DeviceTables&, const Schedule&) {}
  static void give(FusedParameters&) {}
};

std::span<const FormEntry> KernelOp::entries() { return kEntries; }

std::vector<int32_t> KernelOp::source_slots(const Schedule& s) {
  return {s.map.source_slots, s.map.source_slots + s.width()};
}

ReductionWorkLists KernelOp::works(const Schedule& s, WorkSize size) { return work_lists(s, size); }

}  // namespace tilewire::gemm_rs

template class tilewire::FusedKernelOf<tilewire::ReductionKernelTypes<tilewire::gemm_rs::KernelOp>>;

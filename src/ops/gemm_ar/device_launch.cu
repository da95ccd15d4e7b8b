#include "ops/gemm_ar/device_launch.cuh"

#include "device/reduction/reduction_setup.cuh"
#include "ops/gemm_ar/device_entries.h"
#include "ops/gemm_ar/device_parameters.cuh"
#include "ops/gemm_ar/work_lists.h"
#include "reduction/fused_reduction_kernel.cuh"

#include <array>
#include <vector>

namespace tilewire::gemm_ar {

constexpr std::array kEntries = {
    FormEntry{FusedPlan::kForms[0], fused_cooperative_128x256},
    FormEntry{FusedPlan::kForms[1], fused_ping_pong_64x128},
};

struct KernelOp::Own {
  GatherView gather;

  std::vector<int32_t> peers;

  void place(DeviceTables& device, const Schedule& s) {
    const WorkList<MoveWork> forward = forward_list(s);
    place_works(device, collect_list(s), gather.collect);
    place_works(device, forward, gather.forward);
    for (int32_t i = 0; i < s.width() - 1; ++i) peers.push_back(s.topology().local_peer(s.me(), i).value);
    gather.peers = peers.data();
    device.place(gather.peers, peers.size());
    device.place_zeroed(gather.forwarded, forward.works());
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

ReductionWorkLists KernelOp::works(const Schedule& s, WorkSize size) { return work_lists(s, size); }

}  // namespace tilewire::gemm_ar

template class tilewire::FusedKernelOf<tilewire::ReductionKernelTypes<tilewire::gemm_ar::KernelOp>>;

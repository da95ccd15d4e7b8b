// What the fused kernels of ops that sum products over ranks are prepared and launched with, alike. Host code.
#pragma once

#include "device/comm/call_view.cuh"
#include "device/comm/device_tables.cuh"
#include "device/reduction/reduction_view.cuh"
#include "reduction/fused_reduction_kernel.h"
#include "schedule/reduction_work_lists.h"

#include <cuda.h>

#include <span>
#include <vector>

namespace tilewire {

// One kernel of an op on one rank: the parts that follow from its reduction.
class ReductionKernel {
 public:
  // Throws Error(resource) when a grid of so many CTAs does not fit the GPU.
  ReductionKernel(const FormEntry& entry, const ReductionKernelShape& shape, DataType wire, bool is_b_n_major,
                  const DeviceRank& rank, int32_t ctas);

  // The tables behind the schedule and the view, on the device once device().upload() is called. `source_slots`: as
  // encode_slots() takes them. The schedule and the works stay where they are until then.
  void place(ReductionSchedule& schedule, std::span<const int32_t> source_slots, int32_t sums,
             const ReductionWorkLists& works);
  DeviceTables& device() { return device_; }
  int64_t bytes() const { return device_.bytes(); }
  const ReductionView& view() const { return view_; }
  const CallView& call() const { return call_; }
  const DeviceRank& rank() const { return rank_; }
  const FormNumbers& form() const { return entry_.form; }
  int32_t ctas() const { return ctas_; }

  // Throws Error(invalid_argument) naming the operand that does not fit.
  void check(const ReductionKernelOperands& operands) const;
  // The part of a kernel's parameters that these give.
  void place_factors(CUtensorMap& a, CUtensorMap& b, const ReductionKernelOperands& operands) const;
  static ResultView result_of(const ReductionKernelOperands& operands);
  int32_t stages_per_tile() const;
  // `parameters`: the kernel's. Throws Error(internal) when the launch fails.
  void launch(void* parameters, cudaStream_t stream) const;

 private:
  const FormEntry& entry_;
  ReductionKernelShape shape_;
  bool is_b_n_major_;
  DeviceRank rank_;
  int32_t ctas_;
  const void* kernel_;
  DeviceTables device_;
  CallView call_;
  ReductionView view_;
  std::vector<CUtensorMap> slots_;
  uint4* zeros_ = nullptr;   // what K = 0 multiplies
  bool has_chunks_ = false;  // the map is the device's from the upload on
};

}  // namespace tilewire

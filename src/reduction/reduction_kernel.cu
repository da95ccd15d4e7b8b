#include "reduction/reduction_kernel.cuh"

#include "base/bytes.h"
#include "device/comm/call_setup.cuh"
#include "device/reduction/reduction_setup.cuh"
#include "device/tile/tile_launch.cuh"
#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "reduction/wire_types.h"

#include <algorithm>

namespace tilewire {

ReductionKernel::ReductionKernel(const FormEntry& entry, const ReductionKernelShape& shape, DataType wire,
                                 bool is_b_n_major, const DeviceRank& rank, int32_t ctas)
    : entry_(entry),
      shape_(shape),
      is_b_n_major_(is_b_n_major),
      rank_(rank),
      ctas_(ctas),
      kernel_(entry.kernel(shape.type, is_b_n_major)) {
  const WireTypes types = wire_types(wire);
  view_.partial = types.partial;
  view_.node_sum = types.node_sum;
  view_.wire = out_type(types.partial, shape.type);
  prepare_tile_grid(kernel_, entry_.form, ctas);
}

void ReductionKernel::place(ReductionSchedule& schedule, std::span<const int32_t> source_slots, int32_t sums,
                            const ReductionWorkLists& works) {
  has_chunks_ = schedule.map.total_chunks() > 0;
  if (has_chunks_) {
    slots_ = encode_slots(schedule, source_slots, rank_, view_.partial, {kMmaRows, entry_.form.box_cols});
  }
  place_reduction(device_, slots_, works, sums, schedule, view_);
  place_call(device_, rank_, ctas_, schedule.frame, call_);
  device_.place_zeroed(zeros_, 1);
}

void ReductionKernel::check(const ReductionKernelOperands& o) const {
  check_operand(shape_.op, "a", o.a, {shape_.rows, shape_.k, shape_.type});
  check_operand(shape_.op, "b", o.b,
                {is_b_n_major_ ? shape_.k : shape_.n, is_b_n_major_ ? shape_.n : shape_.k, shape_.type});
  check_result(shape_.op, {"out", o.out}, {shape_.result_rows, shape_.n, shape_.result_type});
  if (o.residual && (o.residual->rows != shape_.result_rows || o.residual->cols != shape_.n)) {
    refuse_argument(shape_.op, "residual does not fit the problem", shape_text(*o.residual), shape_text(o.out));
  }
}

// Without K everything that is read is zero, and so are the sums.
void ReductionKernel::place_factors(CUtensorMap& a, CUtensorMap& b, const ReductionKernelOperands& o) const {
  if (!has_chunks_) return;
  const FormNumbers& form = entry_.form;
  const bool has_depth = shape_.k > 0;
  const DeviceMatrix none{zeros_, 1, 8, sizeof(*zeros_), shape_.type};
  const int32_t b_rows = is_b_n_major_ ? kStageDepth : form.cols;
  a = encode_tensor_map("a", has_depth ? o.a : none, {form.rows / form.cluster_col_tiles, kStageDepth});
  b = encode_tensor_map("b", has_depth ? o.b : none, {b_rows / form.cluster_row_tiles, kStageDepth});
}

ResultView ReductionKernel::result_of(const ReductionKernelOperands& o) {
  constexpr int64_t kStoreBytes = 16;
  const int64_t element = size_bytes(o.out.dtype), pitch = o.out.row_stride * element;
  ResultView r{.out = static_cast<std::byte*>(o.out.data),
               .out_pitch_bytes = pitch,
               .out_type = o.out.dtype,
               .bias = static_cast<const std::byte*>(o.bias),
               .bias_type = o.bias_type,
               .is_aligned = reinterpret_cast<uintptr_t>(o.out.data) % kStoreBytes == 0 && pitch % kStoreBytes == 0};
  if (o.residual) {
    const int64_t size = size_bytes(o.residual->dtype);
    r.residual = static_cast<const std::byte*>(o.residual->data);
    r.residual_row_bytes = o.residual->row_stride * size;
    r.residual_col_bytes = o.residual->col_stride * size;
    r.residual_type = o.residual->dtype;
  }
  return r;
}

int32_t ReductionKernel::stages_per_tile() const {
  return static_cast<int32_t>(std::max<int64_t>(1, div_up(shape_.k, kStageDepth)));
}

void ReductionKernel::launch(void* parameters, cudaStream_t stream) const {
  launch_tile_kernel(kernel_, entry_.form, ctas_, parameters, stream, TileLaunch::waits_itself);
}

}  // namespace tilewire

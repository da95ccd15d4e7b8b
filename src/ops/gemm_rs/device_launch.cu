#include "ops/gemm_rs/device_launch.cuh"

#include "base/bytes.h"
#include "device/comm/call_setup.cuh"
#include "device/reduction/reduction_setup.cuh"
#include "device/tile/form_entry.h"
#include "device/tile/tile_launch.cuh"
#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/gemm_rs/device_entries.h"
#include "ops/gemm_rs/device_parameters.cuh"
#include "ops/gemm_rs/roles.h"

#include <algorithm>
#include <array>
#include <string>

namespace tilewire::gemm_rs {

namespace {

constexpr std::array kEntries = {
    FormEntry{kFusedForms[0], fused_cooperative_128x256},
    FormEntry{kFusedForms[1], fused_ping_pong_128x128},
    FormEntry{kFusedForms[2], fused_ping_pong_64x128},
};

[[noreturn]] void refuse(const std::string& what, const std::string& values, const std::string& limit) {
  refuse_argument(kCallName, what, values, limit);
}

const FormEntry& entry_of(const FusedPlan& plan) {
  if (const FormNumbers* form = form_of(plan)) return kEntries[static_cast<size_t>(form - kFusedForms.data())];
  refuse("no kernel has tiles of this plan",
         "tile_rows = " + std::to_string(plan.tile_rows) + ", tile_cols = " + std::to_string(plan.tile_cols),
         "those of a form: 256x256, 128x256, 64x128");
}

}  // namespace

struct FusedKernel::State {
  Problem problem;
  FusedPlan plan;
  const FormEntry* entry;
  const void* kernel = nullptr;
  bool is_b_n_major;
  DeviceRank rank;
  FusedTables tables;
  DeviceTables device;
  Schedule schedule;  // tables on the device; epoch 0
  CallView call;
  ReductionView view;
  std::vector<CUtensorMap> slots;
  uint4* zeros = nullptr;  // what K = 0 multiplies
  bool has_chunks;         // the map is the device's from the upload on

  State(const Problem& p, const FusedPlan& given, const PlanContext& context, const DeviceRank& of, bool n_major)
      : problem(p),
        plan(given),
        entry(&entry_of(given)),
        is_b_n_major(n_major),
        rank(of),
        tables(p, checked(given, p, context), context),
        schedule(tables.schedule(0)),
        has_chunks(schedule.map.total_chunks() > 0) {
    const FormNumbers& form = entry->form;
    const WireTypes wire = wire_types(problem.wire_dtype);
    view.partial = wire.partial;
    view.node_sum = wire.node_sum;
    kernel = entry->kernel(problem.dtype, is_b_n_major);
    prepare_tile_grid(kernel, form, tables.ctas());
    view.wire = out_type(wire.partial, problem.dtype);
    if (has_chunks) slots = encode_slots(schedule, rank, view.partial, {kMmaRows, form.box_cols});
    place_reduction(device, slots, schedule, view);
    place_call(device, rank, tables.ctas(), schedule.frame, call);
    device.place_zeroed(zeros, 1);
    device.upload();
  }

  static const FusedPlan& checked(const FusedPlan& plan, const Problem& p, const PlanContext& context) {
    check_choice(plan, p, context);
    return plan;
  }

  int64_t own_rows() const { return problem.rows[static_cast<size_t>(schedule.me().value)]; }

  void check(const FusedOperands& o) const {
    check_operand(kCallName, "a", o.a, {problem.total_rows(), problem.k, problem.dtype});
    check_operand(kCallName, "b", o.b,
                  {is_b_n_major ? problem.k : problem.n, is_b_n_major ? problem.n : problem.k, problem.dtype});
    check_result(kCallName, {"out", o.out}, {own_rows(), problem.n, problem.out_dtype});
    if (o.residual && (o.residual->rows != own_rows() || o.residual->cols != problem.n)) {
      refuse("residual does not fit the problem", shape_text(*o.residual), shape_text(o.out));
    }
  }

  // Without K everything that is read is zero, and so are the sums.
  void place_factors(FusedParameters& to, const FusedOperands& o) const {
    if (!has_chunks) return;
    const FormNumbers& form = entry->form;
    const bool has_depth = problem.k > 0;
    const DeviceMatrix none{zeros, 1, 8, sizeof(*zeros), problem.dtype};
    const int32_t b_rows = is_b_n_major ? kStageDepth : form.cols;
    to.a = encode_tensor_map("a", has_depth ? o.a : none, {form.rows / form.cluster_col_tiles, kStageDepth});
    to.b = encode_tensor_map("b", has_depth ? o.b : none, {b_rows / form.cluster_row_tiles, kStageDepth});
  }

  ResultView result_of(const FusedOperands& o) const {
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
};

FusedKernel::FusedKernel(const Problem& problem, const FusedPlan& plan, const PlanContext& context,
                         const DeviceRank& rank, bool is_b_n_major)
    : state_(std::make_unique<State>(problem, plan, context, rank, is_b_n_major)) {}
FusedKernel::~FusedKernel() = default;
FusedKernel::FusedKernel(FusedKernel&&) noexcept = default;
FusedKernel& FusedKernel::operator=(FusedKernel&&) noexcept = default;

FusedParameters FusedKernel::parameters(uint64_t agreed_hash, const FusedOperands& operands) const {
  const State& s = *state_;
  s.check(operands);
  FusedParameters p{};
  s.place_factors(p, operands);
  p.schedule = s.schedule;
  p.call = s.call;
  name_call(p.call, agreed_hash, s.rank);
  p.reduction = s.view;
  p.result = s.result_of(operands);
  p.stages_per_tile = static_cast<int32_t>(std::max<int64_t>(1, div_up(s.problem.k, kStageDepth)));
  return p;
}

void FusedKernel::launch(FusedParameters& parameters, cudaStream_t stream) const {
  launch_tile_kernel(state_->kernel, state_->entry->form, state_->tables.ctas(), &parameters, stream);
}

void FusedKernel::launch(uint64_t agreed_hash, const FusedOperands& operands, cudaStream_t stream) const {
  FusedParameters parameters = this->parameters(agreed_hash, operands);
  launch(parameters, stream);
}

int32_t FusedKernel::ctas() const { return state_->tables.ctas(); }
const FormNumbers& FusedKernel::form() const { return state_->entry->form; }

}  // namespace tilewire::gemm_rs

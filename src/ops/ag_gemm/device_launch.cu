#include "ops/ag_gemm/device_launch.cuh"

#include "base/bytes.h"
#include "device/comm/call_setup.cuh"
#include "device/tile/form_entry.h"
#include "device/tile/fused_kernel_bodies.cuh"
#include "device/tile/tile_launch.cuh"
#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/ag_gemm/device_entries.h"
#include "ops/ag_gemm/device_parameters.cuh"
#include "ops/ag_gemm/gathered_copy.cuh"

#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <string>

namespace tilewire::ag_gemm {

namespace {

constexpr int64_t kNothingBytes = 16;
constexpr size_t kLineWords = 32;  // 128 bytes

constexpr std::array kEntries = {
    FormEntry{kFusedForms[0], fused_cooperative_128x256},
    FormEntry{kFusedForms[1], fused_ping_pong_128x192},
    FormEntry{kFusedForms[2], fused_ping_pong_64x128},
};

[[noreturn]] void refuse(const std::string& what, const std::string& values, const std::string& limit) {
  refuse_argument(kCallName, what, values, limit);
}

const FormEntry& entry_of(const PlanChoice& choice) {
  if (const FormNumbers* form = form_of(choice)) return kEntries[static_cast<size_t>(form - kFusedForms.data())];
  refuse("no kernel has tiles of this plan",
         "tile_rows = " + std::to_string(choice.tile_rows) + ", tile_cols = " + std::to_string(choice.tile_cols),
         "those of a form");
}

// What tables are made of, which do not look at it again.
const FusedPlan& checked(const FusedPlan& plan, const Problem& p, const PlanContext& context) {
  check_choice(plan.choice, p, context);
  check_kernel_type(kCallName, p.dtype);
  if (static_cast<int64_t>(p.cols.size()) > ColumnMap::kMaxWeights) {
    refuse("there are too many weights", std::to_string(p.cols.size()), std::to_string(ColumnMap::kMaxWeights));
  }
  if (plan.push_ctas < 0) refuse("push_ctas is negative", std::to_string(plan.push_ctas), "0 or more");
  return plan;
}

void check_count(const char* name, size_t count, size_t weights) {
  if (count == weights) return;
  refuse(std::string("there must be one ") + name + " for each weight", std::to_string(count), std::to_string(weights));
}

}  // namespace

struct FusedTypes::State {
  Problem problem;
  bool wants_gathered;
  FusedPlan plan;
  const FormEntry* entry;
  const void* kernel = nullptr;
  bool is_b_n_major;
  DeviceRank device_rank;
  FusedTables tables;
  DeviceTables device;
  Schedule schedule;  // tables on the device; epoch 0
  UnitCounter counter;
  CallView call;
  std::byte* zeros = nullptr;  // on the device
  CUtensorMap gathered[2] = {};
  mutable KeptTensorMap last_input;  // of the launch before
  mutable std::array<KeptTensorMap, ColumnMap::kMaxWeights> last_b, last_d;

  State(const Problem& p, const FusedPlan& given, const PlanContext& context, const DeviceRank& of, bool n_major)
      : problem(p),
        wants_gathered(p.wants_gathered && p.k > 0 && p.total_rows() > 0),
        plan(checked(given, p, context)),
        entry(&entry_of(given.choice)),
        is_b_n_major(n_major),
        device_rank(of),
        tables(p, given, context),
        schedule(tables.schedule(0)) {
    problem = tables.problem();
    const FormNumbers& form = entry->form;
    kernel = entry->kernel(problem.dtype, is_b_n_major);
    counter.units = static_cast<uint32_t>(schedule.grid.tiles() / form.cluster_ctas());
    counter.clusters = static_cast<uint32_t>(schedule.workers / form.cluster_ctas());
    prepare_tile_grid(kernel, form, tables.ctas());
    place_tables();
    for (Epoch half = 0; half < 2; ++half) {
      if (schedule.grid.rows == 0) continue;
      gathered[half] = encode_tensor_map("gathered", problem.k > 0 ? gathered_at(half) : nothing(),
                                         {form.rows / form.cluster_col_tiles, kStageDepth});
    }
    if (wants_gathered) prepare_gathered_copy();
  }

  void place_tables() {
    const auto ranks = static_cast<size_t>(schedule.topology().ranks);
    device.place(schedule.chunks.row_begin, ranks + 1);
    device.place(schedule.chunks.chunk_begin, ranks + 1);
    device.place(schedule.row_order, static_cast<size_t>(schedule.grid.row_blocks));
    device.place_zeroed(zeros, kNothingBytes);
    device.place_zeroed(counter.taken, kLineWords);
    place_call(device, device_rank, tables.ctas(), schedule.frame, call);
    device.upload();
  }

  // The operand of a K of 0: all that lies beside its one row is read as zeros, as the row is.
  DeviceMatrix nothing() const {
    return {zeros, 1, kNothingBytes / size_bytes(problem.dtype), kNothingBytes, problem.dtype};
  }

  DeviceMatrix gathered_at(Epoch epoch) const {
    return {device_rank.arenas[static_cast<size_t>(schedule.me().value)] + schedule.frame.arena.half_offset(epoch) +
                schedule.buffers.gathered_offset(0),
            schedule.grid.rows, problem.k, schedule.buffers.pitch_bytes, problem.dtype};
  }

  // Maps that are never used are prefetched all the same.
  CUtensorMap input_map(const DeviceMatrix& a) const {
    if (a.rows == 0 || problem.k == 0 || schedule.grid.rows == 0) return gathered[0];
    return last_input.of("a", a, {entry->form.rows / entry->form.cluster_col_tiles, kStageDepth});
  }

  GatheredCopy gathered_copy(const FusedOperands& o) const {
    return {.gathered = {gathered_at(0), gathered_at(1)},
            .input = o.a,
            .first_own_row = tables.schedule(0).chunks.row_begin[schedule.me().value],
            .to = static_cast<std::byte*>(const_cast<void*>(o.gathered.data)),
            .to_pitch_bytes = o.gathered.pitch_bytes,
            .state = call.state,
            .abort_word = call.limits.abort_word};
  }

  void check(const FusedOperands& o) const {
    const size_t weights = problem.cols.size();
    check_operand(kCallName, "a", o.a,
                  {problem.rows[static_cast<size_t>(schedule.me().value)], problem.k, problem.dtype});
    if (wants_gathered) {
      check_operand(kCallName, "gathered", o.gathered, {schedule.grid.rows, problem.k, problem.dtype});
    }
    check_count("b", o.b.size(), weights);
    check_count("out", o.out.size(), weights);
    if (!o.bias.empty()) check_count("bias", o.bias.size(), weights);
    if (!o.bias.empty() && o.bias_type != DataType::fp32 && o.bias_type != problem.dtype) {
      refuse("bias has a dtype of its own", to_string(o.bias_type), std::string("fp32 or ") + to_string(problem.dtype));
    }
  }

  void place(FusedParameters& to, const FusedOperands& o) const {
    std::copy(std::begin(gathered), std::end(gathered), to.gathered);
    for (size_t w = 0; w < problem.cols.size(); ++w) place_weight(to, o, w);
    to.bias.is_fp32 = o.bias_type == DataType::fp32;
    to.out = out_type(problem.out_dtype, problem.dtype);
    to.schedule = schedule;
    to.call = call;
    to.shard = {static_cast<const std::byte*>(o.a.data), o.a.pitch_bytes};
    to.stages_per_tile = static_cast<int32_t>(div_up(std::max<int64_t>(problem.k, 1), kStageDepth));
    to.counter = counter;
    to.comm_ctas = tables.comm_ctas();
    to.pace_clocks = plan.pace_clocks;
    to.input = input_map(o.a);
  }

  void launch(FusedParameters& parameters, cudaStream_t stream) const {
    launch_tile_kernel(kernel, form(), ctas(), &parameters, stream);
  }
  void follow(const FusedOperands& o, cudaStream_t stream) const {
    if (wants_gathered) launch_gathered_copy(gathered_copy(o), ctas(), stream);
  }
  const DeviceRank& rank() const { return device_rank; }
  int32_t ctas() const { return tables.ctas(); }
  const FormNumbers& form() const { return entry->form; }
  int64_t bytes() const { return device.bytes(); }

  void place_weight(FusedParameters& to, const FusedOperands& o, size_t w) const {
    const FormNumbers& form = entry->form;
    const int64_t cols = problem.cols[w];
    const std::string b = argument_name("b", w, problem.cols.size()),
                      out = argument_name("out", w, problem.cols.size());
    check_operand(kCallName, b, o.b[w],
                  {is_b_n_major ? problem.k : cols, is_b_n_major ? cols : problem.k, problem.dtype});
    check_operand(kCallName, out, o.out[w], {schedule.grid.rows, cols, problem.out_dtype});
    if (!o.bias.empty()) to.bias.data[w] = o.bias[w];
    if (schedule.grid.rows == 0) return;
    if (cols == 0) {  // never used, but maps are prefetched
      to.b[w] = to.d[w] = gathered[0];
      return;
    }
    const int32_t b_rows = is_b_n_major ? kStageDepth : form.cols;
    to.b[w] =
        last_b[w].of(b.c_str(), problem.k > 0 ? o.b[w] : nothing(), {b_rows / form.cluster_row_tiles, kStageDepth});
    const int32_t box_cols = problem.out_dtype == DataType::fp32 ? form.box_cols / 2 : form.box_cols;
    to.d[w] = last_d[w].of(out.c_str(), o.out[w], {kMmaRows, box_cols});
  }
};

void FusedKernel::copy_gathered(const FusedOperands& operands, cudaStream_t stream) const {
  state().follow(operands, stream);
}

DeviceMatrix FusedKernel::gathered(Epoch epoch) const { return state().gathered_at(epoch); }

}  // namespace tilewire::ag_gemm

template class tilewire::FusedKernelOf<tilewire::ag_gemm::FusedTypes>;

#include "ops/attention/device_launch.cuh"

#include "base/bytes.h"
#include "device/comm/call_setup.cuh"
#include "device/cuda_check.cuh"
#include "device/tile/fused_kernel_bodies.cuh"
#include "device/tile/tensor_map.cuh"
#include "device/tile/tile_launch.cuh"
#include "operands/matrix_checks.h"
#include "ops/attention/device_entries.h"
#include "ops/attention/device_parameters.cuh"
#include "ops/attention/device_sight.cuh"

#include <tilewire/error.h>

#include <array>
#include <cmath>
#include <string>

namespace tilewire::attention {

namespace {

struct Entry {
  AttentionForm form;
  const void* (*kernel)(DataType type);
};
constexpr std::array kEntries = {Entry{kFusedForms[0], fused_wide_128x128}, Entry{kFusedForms[1], fused_narrow_192x96}};

[[noreturn]] void refuse(const std::string& what, const std::string& values, const std::string& limit) {
  refuse_argument(kCallName, what, values, limit);
}

const Entry& entry_of(int64_t head_dim) {
  return kEntries[static_cast<size_t>(&fused_form(head_dim) - kFusedForms.data())];
}

// What tables are made of, which do not look at it again.
const FusedPlan& checked(const FusedPlan& plan, const Problem& p, const PlanContext& context) {
  check_choice(plan, p, context);
  check_kernel_type(kCallName, p.dtype);
  if (p.out_dtype != p.dtype) {
    refuse("the result has a dtype of its own", to_string(p.out_dtype), std::string(to_string(p.dtype)) + " on a GPU");
  }
  return plan;
}

void prepare(const void* kernel, const AttentionForm& form, int32_t ctas) {
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, form.shared_bytes),
             std::string("asking for the shared memory of ") + form.name);
  int of_sm = 0;
  check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&of_sm, kernel, form.threads,
                                                           static_cast<size_t>(form.shared_bytes)),
             "asking how many CTAs fit");
  const int32_t fit = of_sm * sm_count();
  if (ctas <= fit) return;
  throw Error(ErrorKind::resource, {.what = "the grid of the kernel does not fit the GPU",
                                    .values = std::to_string(ctas) + " CTAs of " + form.name,
                                    .limit = std::to_string(fit) + " at once"});
}

}  // namespace

void check_kernel_scale(float scale) {
  if (scale > 0 && std::isfinite(scale)) return;
  refuse("scale is not a positive number", std::to_string(scale), "above 0 on a GPU");
}

struct FusedTypes::State {
  Problem problem;
  FusedPlan plan;
  const Entry* entry;
  const void* kernel;
  DeviceRank device_rank;
  ScheduleTables tables;
  CallLayout layout;
  mutable DeviceSight sight;
  DeviceTables device;
  Schedule schedule;  // tables on the device, but for those that say what rows see
  CallView call;
  UnitCounter counter;
  std::byte* zeros = nullptr;  // a line, on the device

  State(const Problem& p, const FusedPlan& given, const PlanContext& context, const DeviceRank& of, bool has_own_sight)
      : problem(p),
        plan(checked(given, p, context)),
        entry(&entry_of(p.head_dim)),
        kernel(entry->kernel(p.dtype)),
        device_rank(of),
        tables(p, given.choice, context),
        layout(layout_of(p, given.choice, context)),
        sight(p, tables, entry->form.step, has_own_sight),
        schedule(tables.schedule(0)) {
    prepare(kernel, entry->form, ctas());
    place_tables();
  }

  void place_tables() {
    const auto ranks = static_cast<size_t>(schedule.ranks());
    device.place(schedule.blocks.row_begin, ranks + 1);
    device.place(schedule.blocks.chunk_begin, ranks + 1);
    device.place_zeroed(counter.taken, 32);  // 128 bytes
    counter.units = narrow<uint32_t>(schedule.items());
    counter.clusters = static_cast<uint32_t>(ctas());
    device.place_zeroed(zeros, static_cast<size_t>(line_bytes()));
    place_call(device, device_rank, ctas(), schedule.frame, call);
    device.upload();
  }

  int64_t line_bytes() const { return problem.kv_row_bytes() / 2; }
  // Some lines one behind the other.
  HeadsView lines(std::byte* at, int64_t count) const {
    return {at, 1, count, 1, problem.head_dim, 0, problem.head_dim, 0, 1, problem.dtype};
  }
  CUtensorMap received(Epoch half) const {
    std::byte* at = device_rank.arenas[static_cast<size_t>(schedule.me().value)] +
                    schedule.frame.arena.half_offset(half) + first_line_offset(schedule);
    const int64_t count = (layout.end - first_line_offset(schedule)) / line_bytes();
    return map("received", count > 0 ? lines(at, count) : lines(zeros, 1), step_box());
  }
  TensorBox step_box() const { return {entry->form.step, 64}; }
  TensorBox copied_box() const {
    return {static_cast<int32_t>(kCopyPieceBytes / line_bytes()), static_cast<int32_t>(problem.head_dim), false};
  }
  // Where nothing is to be read the map is that of a line of zeros: it is never
  // used.
  CUtensorMap map(const char* name, const HeadsView& heads, TensorBox box) const {
    const bool is_empty = heads.batch * heads.rows * heads.heads == 0;
    return encode_heads_map(name, is_empty ? lines(zeros, 1) : heads, box);
  }

  void check_heads(const char* name, const HeadsView& h, int64_t rows, int64_t heads) const {
    if (h.batch != problem.batch || h.rows != rows || h.heads != heads || h.dim != problem.head_dim ||
        h.dtype != problem.dtype) {
      refuse(std::string(name) + " is not what the problem says",
             "[" + std::to_string(h.batch) + ", " + std::to_string(h.rows) + ", " + std::to_string(h.heads) + ", " +
                 std::to_string(h.dim) + "] " + to_string(h.dtype),
             "[" + std::to_string(problem.batch) + ", " + std::to_string(rows) + ", " + std::to_string(heads) + ", " +
                 std::to_string(problem.head_dim) + "] " + to_string(problem.dtype));
    }
  }
  void check(const FusedOperands& o) const {
    const auto me = static_cast<size_t>(schedule.me().value);
    check_heads("q", o.q, problem.rows[me], problem.q_heads);
    check_heads("k", o.k, problem.kv_rows[me], problem.kv_heads);
    check_heads("v", o.v, problem.kv_rows[me], problem.kv_heads);
    check_heads("out", o.out, problem.rows[me], problem.q_heads);
    check_kernel_scale(o.scale);
  }

  const Problem& problem_of(const FusedOperands& o) const { return o.problem == nullptr ? problem : *o.problem; }
  void lead(const FusedOperands& o, cudaStream_t stream) const { sight.bring(problem_of(o), stream); }
  void follow(const FusedOperands&, cudaStream_t) const { sight.hold_captured(); }
  void place(FusedParameters& to, const FusedOperands& o) const {
    const AttentionForm& form = entry->form;
    to.q = map("q", o.q, {form.rows, 64});
    to.o = map("out", o.out, {64, 64});
    to.k = map("k", o.k, step_box());
    to.v = map("v", o.v, step_box());
    to.copied_k = map("k", o.k, copied_box());
    to.copied_v = map("v", o.v, copied_box());
    for (Epoch half = 0; half < 2; ++half) to.received[half] = received(half);
    to.schedule = schedule;
    sight.point(problem_of(o), to.schedule, to.steps);
    to.call = call;
    to.counter = counter;
    to.log_sums = o.log_sums;
    to.log_sum_pitch = o.log_sum_pitch;
    to.q_heads = static_cast<int32_t>(problem.q_heads);
    to.kv_heads = static_cast<int32_t>(problem.kv_heads);
    to.line_bytes = static_cast<int32_t>(line_bytes());
    to.scale = o.scale;
    to.pace_clocks = plan.pace_clocks;
  }

  void launch(FusedParameters& parameters, cudaStream_t stream) const {
    void* arguments[] = {&parameters};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(ctas()));
    config.blockDim = dim3(static_cast<unsigned>(entry->form.threads));
    config.dynamicSmemBytes = static_cast<size_t>(entry->form.shared_bytes);
    config.stream = stream;
    check_cuda(cudaLaunchKernelExC(&config, kernel, arguments), std::string("launching ") + entry->form.name);
  }
  const DeviceRank& rank() const { return device_rank; }
  int32_t ctas() const { return plan.choice.workers; }
  const AttentionForm& form() const { return entry->form; }
  int64_t bytes() const { return device.bytes() + sight.bytes(); }
};

const CallReport& FusedKernel::report(const Problem& problem) const { return state().sight.report(problem); }

}  // namespace tilewire::attention

template class tilewire::FusedKernelOf<tilewire::attention::FusedTypes>;

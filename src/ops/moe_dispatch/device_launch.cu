#include "ops/moe_dispatch/device_launch.cuh"

#include "base/bytes.h"
#include "device/comm/call_setup.cuh"
#include "device/tile/form_entry.h"
#include "device/tile/fused_kernel_bodies.cuh"
#include "device/tile/tile_launch.cuh"
#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/moe_dispatch/device_entries.h"
#include "ops/moe_dispatch/device_parameters.cuh"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace tilewire::moe_dispatch {

namespace {

constexpr int64_t kNothingBytes = 16;

constexpr std::array kEntries = {
    FormEntry{FusedPlan::kForms[0], fused_ping_pong_128x128},
    FormEntry{FusedPlan::kForms[1], fused_cooperative_128x256_in_line},
};

const FormEntry& entry_of(const FusedPlan& plan) {
  return kEntries[static_cast<size_t>(form_of(plan) - FusedPlan::kForms.data())];
}

}  // namespace

struct FusedTypes::State {
  Problem problem;
  PlanChoice choice;
  const FormEntry* entry;
  const void* kernel = nullptr;
  bool is_b_n_major;
  DeviceRank device_rank;
  ScheduleTables tables;
  DeviceTables device;
  Schedule schedule;  // tables on the device; epoch 0
  CallView call;
  DeviceScratch scratch;
  std::byte* routing_memory = nullptr;
  std::byte* zeros = nullptr;
  CUtensorMap rows[2] = {};
  mutable SlotArray last_w;  // of the launch before
  mutable CUtensorMap last_w_map = {};

  State(const Problem& p, const FusedPlan& given, const PlanContext& context, const DeviceRank& of, bool n_major)
      : problem(p),
        choice(given.choice),
        entry((check_choice(given, p, context), &entry_of(given))),
        is_b_n_major(n_major),
        device_rank(of),
        tables(p, given.choice, context),
        schedule(tables.schedule(0)) {
    const FormNumbers& form = entry->form;
    kernel = entry->kernel(problem.dtype, is_b_n_major);
    prepare_tile_grid(kernel, form, choice.workers);
    schedule.workers = choice.workers / form.cluster_ctas();
    // Origins go with the first tile of a row; rows without columns have a tile that is nothing else.
    schedule.columns.has_gather_copy = problem.cols == 0;
    place_tables();
    place_routing_on_device();
    for (Epoch half = 0; half < 2; ++half) {
      rows[half] = encode_tensor_map("rows", rows_at(half), {form.rows / form.cluster_col_tiles, kStageDepth});
    }
  }

  void place_tables() {
    Schedule& s = schedule;
    const auto ranks = static_cast<size_t>(s.ranks()), experts = static_cast<size_t>(s.experts.experts);
    const auto rounds = static_cast<size_t>(s.buffers.tables.rounds);
    device.place(s.experts.first, ranks + 1);
    device.place(s.experts.place_of, experts);
    device.place(s.experts.rank_of, experts);
    device.place(s.source_at, ranks);
    device.place(s.position_of, ranks);
    const auto nodes = static_cast<size_t>(s.topology().nodes);
    device.place_zeroed(scratch.part_counts, std::max(rounds, static_cast<size_t>(choice.workers)) * (experts + nodes));
    device.place_zeroed(scratch.counted, 1);
    device.place_zeroed(scratch.counts_are_known, 1);
    device.place_zeroed(scratch.placed, 1);
    device.place_zeroed(scratch.places_are_known, 1);
    device.place_zeroed(scratch.pushed, rounds * static_cast<size_t>(s.pieces * s.width()));
    device.place_zeroed(scratch.packed, rounds * nodes * static_cast<size_t>(s.most_chunks()));
    device.place_zeroed(scratch.forwarded, rounds * ranks);
    device.place_zeroed(scratch.taken, rounds);
    device.place_zeroed(scratch.remarked, 1);
    device.place_zeroed(routing_memory, static_cast<size_t>(s.buffers.tables_bytes));
    device.place_zeroed(zeros, kNothingBytes);
    place_call(device, device_rank, choice.workers, s.frame, call);
    device.upload();
  }

  // Nobody else looks at the tables of a rank, so they have a place of the kernel's own, which no call moves.
  void place_routing_on_device() {
    const RoutingLimits& limits = schedule.buffers.tables;
    std::vector<std::byte> host(static_cast<size_t>(schedule.buffers.tables_bytes));
    Routing* placed = place_routing(host.data(), limits);
    for_each_table(*placed, limits, [&]<class T>(T*& table, int64_t) {
      table = reinterpret_cast<T*>(routing_memory + (reinterpret_cast<std::byte*>(table) - host.data()));
    });
    check_cuda(cudaMemcpy(routing_memory, placed, sizeof(Routing), cudaMemcpyHostToDevice), "placing tables");
    schedule.routing = reinterpret_cast<Routing*>(routing_memory);
  }

  // What a depth of 0 multiplies: all that lies beside its one row is read as zeros, as the row is.
  DeviceMatrix nothing() const {
    return {zeros, 1, kNothingBytes / size_bytes(problem.dtype), kNothingBytes, problem.dtype};
  }
  DeviceMatrix rows_at(Epoch epoch) const {
    const Buffers& b = schedule.buffers;
    if (b.slot_rows == 0 || problem.h == 0) return nothing();
    return {
        device_rank.arenas[static_cast<size_t>(schedule.me().value)] + b.arena.half_offset(epoch) + b.rows_offset(0, 0),
        b.window * b.slot_rows, problem.h, b.row_pitch, problem.dtype};
  }
  int64_t own_experts() const {
    return std::count(problem.rank_of_expert.begin(), problem.rank_of_expert.end(), schedule.me().value);
  }

  void check(const FusedOperands& o) const {
    if (problem.counts_only) return;
    check_operand(kCallName, "x", o.x, {o.x.rows, problem.h, problem.dtype});
    if (o.x.rows > problem.most_tokens) {
      refuse_argument(kCallName, "a rank brings more tokens than the call is made for", std::to_string(o.x.rows),
                      std::to_string(problem.most_tokens));
    }
    check_operand(kCallName, "out", o.out, {o.out.rows, problem.cols, problem.out_dtype});
    const int64_t rows = is_b_n_major ? problem.h : problem.cols, cols = is_b_n_major ? problem.cols : problem.h;
    const bool is_alike = o.w.rows == rows && o.w.cols == cols && o.w.type == problem.dtype;
    if (o.w.slots != own_experts() || (o.w.slots > 0 && !is_alike)) {
      refuse_argument(
          kCallName, "w1 does not fit the problem",
          std::to_string(o.w.slots) + " of [" + std::to_string(o.w.rows) + ", " + std::to_string(o.w.cols) + "]",
          std::to_string(own_experts()) + " of [" + std::to_string(rows) + ", " + std::to_string(cols) + "]");
    }
    if (o.w.slots > 0) check_stored("w1", {o.w.data, o.w.rows, o.w.cols, o.w.pitch_bytes, o.w.type});
  }

  void place(FusedParameters& to, const FusedOperands& o) const {
    std::copy(std::begin(rows), std::end(rows), to.rows);
    to.w = weight_map(o.w);
    to.schedule = schedule;
    to.schedule.tokens = o.x.rows;
    to.call = call;
    to.x = {static_cast<const std::byte*>(o.x.data), o.x.pitch_bytes};
    to.routes = o.routes;
    to.results = {.out = static_cast<std::byte*>(const_cast<void*>(o.out.data)),
                  .rows = o.out.rows,
                  .cols = problem.cols,
                  .pitch_bytes = o.out.pitch_bytes,
                  .origins = o.origins,
                  .offsets = o.offsets};
    to.scratch = scratch;
    to.remarks = device_rank.remarks;
    to.most_rows = problem.most_rows;
    to.stages_per_tile = static_cast<int32_t>(div_up(std::max<int64_t>(problem.h, 1), kStageDepth));
  }
  // Where there are no weights the map is prefetched all the same.
  CUtensorMap weight_map(const SlotArray& w) const {
    SlotArray at = w;
    const int64_t size = size_bytes(problem.dtype);
    if (w.slots == 0 || problem.counts_only || problem.h == 0 || problem.cols == 0) {
      at = {zeros, 1, 1, kNothingBytes / size, kNothingBytes, kNothingBytes, problem.dtype};
    }
    if (std::memcmp(&at, &last_w, sizeof(at)) == 0) return last_w_map;
    const int32_t box_rows = is_b_n_major ? kStageDepth : entry->form.cols;
    last_w_map = encode_slot_map("w1", at, {box_rows / entry->form.cluster_row_tiles, kStageDepth});
    last_w = at;
    return last_w_map;
  }

  void launch(FusedParameters& parameters, cudaStream_t stream) const {
    launch_tile_kernel(kernel, form(), ctas(), &parameters, stream);
  }
  const DeviceRank& rank() const { return device_rank; }
  int32_t ctas() const { return choice.workers; }
  const FormNumbers& form() const { return entry->form; }
  int64_t bytes() const { return device.bytes(); }
};

Routing FusedKernel::routing() const {
  Routing routing;
  check_cuda(cudaMemcpy(&routing, state().routing_memory, sizeof(routing), cudaMemcpyDeviceToHost), "reading tables");
  return routing;
}

CallCounts FusedKernel::counts() const {
  const Routing routing = this->routing();
  const auto ranks = static_cast<size_t>(state().schedule.ranks());
  CallCounts counts{std::vector<int64_t>(ranks), std::vector<int64_t>(ranks)};
  const auto read = [&](std::vector<int64_t>& to, const int64_t* from) {
    check_cuda(cudaMemcpy(to.data(), from, to.size() * sizeof(int64_t), cudaMemcpyDeviceToHost), "reading counts");
  };
  read(counts.rows, routing.rows_of);
  read(counts.tokens, routing.tokens_of);
  return counts;
}

}  // namespace tilewire::moe_dispatch

template class tilewire::FusedKernelOf<tilewire::moe_dispatch::FusedTypes>;

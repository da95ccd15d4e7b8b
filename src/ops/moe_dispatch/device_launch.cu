#include "ops/moe_dispatch/device_launch.cuh"

#include "base/bytes.h"
#include "device/comm/call_setup.cuh"
#include "device/tile/form_entry.h"
#include "device/tile/fused_kernel_bodies.cuh"
#include "device/tile/tile_launch.cuh"
#include "operands/device_operands.h"
#include "operands/matrix_checks.h"
#include "ops/moe_dispatch/device_count.cuh"
#include "ops/moe_dispatch/device_entries.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace tilewire::moe_dispatch {

namespace {

constexpr int64_t kNothingBytes = 16;

constexpr std::array kEntries = {
    FormEntry{kFusedForms[0], fused_ping_pong_128x128},
};

const FormEntry& entry_of(const PlanChoice& choice) {
  if (const FormNumbers* form = form_of(choice)) return kEntries[static_cast<size_t>(form - kFusedForms.data())];
  refuse_argument(
      kCallName, "no kernel has tiles of this plan",
      "tile_rows = " + std::to_string(choice.tile_rows) + ", tile_cols = " + std::to_string(choice.tile_cols),
      "those of a form");
}

// What is counted of each of them stands in the shared memory that is the tiles' later.
void check_sizes(const Problem& p, const PlanChoice& choice, const Topology& t, const FormNumbers& form) {
  check_kernel_type(kCallName, p.dtype);
  if (p.out_dtype != p.dtype) {
    refuse_argument(kCallName, "results have a dtype of their own", to_string(p.out_dtype), to_string(p.dtype));
  }
  const int64_t most = (form.shared_bytes - (64 << 10)) / (kTableWarps * int64_t{sizeof(int32_t)});
  if (p.experts() + t.nodes > most) {
    refuse_argument(kCallName, "there are too many experts for a kernel", std::to_string(p.experts()),
                    std::to_string(most - t.nodes));
  }
  for (int32_t n = 0; n < t.nodes; ++n) {
    if (t.ranks_on(Node{n}) <= RouteCount::kMostPublished) continue;
    refuse_argument(kCallName, "a node has too many ranks for a kernel", std::to_string(t.ranks_on(Node{n})),
                    std::to_string(RouteCount::kMostPublished));
  }
  if (choice.workers < kRankWarps + 1 || choice.workers % form.launch_ctas != 0) {
    refuse_argument(kCallName, "no grid has so many CTAs", std::to_string(choice.workers),
                    "4 or more, in clusters of " + std::to_string(form.launch_ctas));
  }
}

}  // namespace

const FormNumbers* form_of(const PlanChoice& choice) {
  for (const FormNumbers& form : kFusedForms) {
    if (choice.tile_rows == form.work_rows() && choice.tile_cols == form.work_cols()) return &form;
  }
  return nullptr;
}

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

  State(const Problem& p, const PlanChoice& given, const PlanContext& context, const DeviceRank& of, bool n_major)
      : problem(p),
        choice(given),
        entry(&entry_of(given)),
        is_b_n_major(n_major),
        device_rank(of),
        tables((check_choice(given, p, context), p), given, context),
        schedule(tables.schedule(0)) {
    const FormNumbers& form = entry->form;
    check_sizes(problem, choice, schedule.topology(), form);
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
    const int64_t block = std::max<int64_t>(1, s.buffers.block_tokens);
    device.place(s.experts.first, ranks + 1);
    device.place(s.experts.place_of, experts);
    device.place(s.experts.rank_of, experts);
    device.place(s.source_at, ranks);
    device.place(s.position_of, ranks);
    const auto nodes = static_cast<size_t>(s.topology().nodes);
    device.place_zeroed(scratch.slice_counts, rounds * static_cast<size_t>(slices_of_round(block)) * (experts + nodes));
    device.place_zeroed(scratch.counted, 1);
    device.place_zeroed(scratch.placed, 1);
    device.place_zeroed(scratch.places_are_known, 1);
    device.place_zeroed(scratch.pushed, rounds * static_cast<size_t>(s.pieces * s.width()));
    device.place_zeroed(scratch.packed, rounds * nodes * static_cast<size_t>(s.most_chunks()));
    device.place_zeroed(scratch.forwarded, rounds * ranks);
    device.place_zeroed(scratch.taken, rounds);
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
    check_operand(kCallName, "x", o.x, {o.x.rows, problem.h, problem.dtype});
    if (o.x.rows > problem.most_tokens) {
      refuse_argument(kCallName, "a rank brings more tokens than the call is made for", std::to_string(o.x.rows),
                      std::to_string(problem.most_tokens));
    }
    check_operand(kCallName, "out", o.out, {o.out.rows, problem.cols, problem.out_dtype});
    const int64_t rows = is_b_n_major ? problem.h : problem.cols, cols = is_b_n_major ? problem.cols : problem.h;
    if (o.w.slots != own_experts() || o.w.rows != rows || o.w.cols != cols || o.w.type != problem.dtype) {
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
    to.most_rows = problem.most_rows;
    to.stages_per_tile = static_cast<int32_t>(div_up(std::max<int64_t>(problem.h, 1), kStageDepth));
  }
  // Where there are no weights the map is prefetched all the same.
  CUtensorMap weight_map(const SlotArray& w) const {
    SlotArray at = w;
    const int64_t size = size_bytes(problem.dtype);
    if (w.slots == 0 || problem.h == 0 || problem.cols == 0) {
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
};

Routing FusedKernel::routing() const {
  Routing routing;
  check_cuda(cudaMemcpy(&routing, state().routing_memory, sizeof(routing), cudaMemcpyDeviceToHost), "reading tables");
  return routing;
}

}  // namespace tilewire::moe_dispatch

template class tilewire::FusedKernelOf<tilewire::moe_dispatch::FusedTypes>;

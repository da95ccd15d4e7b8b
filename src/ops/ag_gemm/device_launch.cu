#include "ops/ag_gemm/device_launch.cuh"

#include "base/bytes.h"
#include "device/comm/call_setup.cuh"
#include "device/tile/form_entry.h"
#include "device/tile/tile_launch.cuh"
#include "executor/device_operands.h"
#include "executor/matrix_checks.h"
#include "ops/ag_gemm/device_entries.h"
#include "ops/ag_gemm/device_parameters.cuh"

#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

namespace tilewire::ag_gemm {

namespace {

constexpr int32_t kRankWarps = 3;  // CTAs that have one: see kernel.cuh

constexpr std::array kEntries = {
    FormEntry{form_numbers<WithSpareRoom<Cooperative128x256>>(), fused_cooperative_128x256},
    FormEntry{form_numbers<WithSpareRoom<PingPong128x192>>(), fused_ping_pong_128x192},
    FormEntry{form_numbers<WithSpareRoom<PingPong64x128>>(), fused_ping_pong_64x128},
};

[[noreturn]] void refuse(const std::string& what, const std::string& values, const std::string& limit) {
  refuse_argument(kCallName, what, values, limit);
}

const FormEntry& entry_of(const PlanChoice& choice) {
  if (const FormEntry* entry = find_form(kEntries, choice.tile_rows, choice.tile_cols)) return *entry;
  refuse("no kernel has tiles of this plan",
         "tile_rows = " + std::to_string(choice.tile_rows) + ", tile_cols = " + std::to_string(choice.tile_cols),
         "those of a form: 256x256, 256x192, 64x128");
}

void check_problem(const Problem& p, const FusedPlan& plan) {
  if (p.k < 1) refuse("k is 0", "", "K = 0 needs no kernel: the result is the bias or zeros");
  if (p.dtype == DataType::fp32) refuse("a has elements of 32 bits", "fp32", "bf16 or fp16");
  if (p.out_dtype != p.dtype) refuse("out has another dtype than a", to_string(p.out_dtype), to_string(p.dtype));
  if (p.wants_gathered) refuse("the gathered rows are not copied by a kernel", "", "use FusedKernel::gathered()");
  if (static_cast<int64_t>(p.cols.size()) > ColumnMap::kMaxWeights) {
    refuse("there are too many weights", std::to_string(p.cols.size()), std::to_string(ColumnMap::kMaxWeights));
  }
  if (plan.push_ctas < 0) refuse("push_ctas is negative", std::to_string(plan.push_ctas), "0 or more");
}

void check_count(const char* name, size_t count, size_t weights) {
  if (count == weights) return;
  refuse(std::string("there must be one ") + name + " for each weight", std::to_string(count), std::to_string(weights));
}

// Beside those that push one forwards, where there are several nodes.
int32_t comm_ctas_of(int32_t push_ctas, const Topology& topology, const FormNumbers& form) {
  if (push_ctas == 0) return 0;
  return static_cast<int32_t>(round_up(push_ctas + (topology.nodes > 1 ? 1 : 0), form.cluster_ctas()));
}

// Seconds until the rows of all ranks can be here: each rank's port inside its node takes the rows of all others, and
// those of other nodes come over the network, one node's worth spread over the ranks of a node.
double gather_s(const Problem& problem, const Topology& topology, const Machine& machine) {
  const auto bytes = static_cast<double>(problem.total_rows() * problem.k * size_bytes(problem.dtype));
  const double ranks = topology.ranks, nodes = topology.nodes;
  const double inside_s = bytes * (1 - 1 / ranks) / machine.node_bytes_per_s;
  const double between_s = bytes * (nodes - 1) / ranks / machine.network_bytes_per_s;
  return nodes == ranks ? between_s : std::max(inside_s, between_s);
}

// What the busiest SM computes, or the last rows to come and one tile of them.
double fused_clocks(const FormNumbers& form, const Problem& problem, int64_t cols, int32_t sms, double gather_s,
                    bool is_shared) {
  constexpr double kClocksPerS = 1.7e9;
  return std::max(model_clocks(form, problem.total_rows(), cols, problem.k, sms, is_shared),
                  gather_s * kClocksPerS + tile_clocks(form, problem.k, CacheUse::little));
}

// Row blocks that are walked together. Few: how soon the rows are here counts for more than how often b is read, unless
// it is read from memory each time.
int32_t raster_rows(const Problem& problem, int64_t cols, const Topology& topology, int32_t tile_rows) {
  constexpr int64_t kCacheBytes = int64_t{24} << 20;  // what b may have of the cache
  if (topology.ranks == 1) return 8;
  const int64_t blocks_a_rank = problem.total_rows() / tile_rows / topology.ranks;
  const bool is_b_cached = problem.k * cols * size_bytes(problem.dtype) <= kCacheBytes;
  if (topology.nodes > 1) return is_b_cached ? 1 : 2;
  return is_b_cached || blocks_a_rank < 8 ? 1 : 4;
}

}  // namespace

FusedPlan fused_plan(const Problem& problem, const Topology& topology, const Machine& machine, int32_t sms,
                     int32_t push_ctas) {
  const int64_t cols = std::accumulate(problem.cols.begin(), problem.cols.end(), int64_t{0});
  const double last_rows_s = topology.ranks > 1 ? gather_s(problem, topology, machine) : 0;
  const FormNumbers* best = nullptr;
  for (const FormEntry& entry : kEntries) {
    const int32_t left = sms - comm_ctas_of(push_ctas, topology, entry.form);
    if (left < entry.form.cluster_ctas()) continue;
    const auto clocks = [&](const FormNumbers& form) {
      return fused_clocks(form, problem, cols, left, last_rows_s, machine.ranks_per_gpu > 1);
    };
    if (best == nullptr || clocks(entry.form) < clocks(*best)) best = &entry.form;
  }
  if (best == nullptr) {
    throw Error(ErrorKind::resource, {.what = "no SM is left to compute with",
                                      .values = std::to_string(sms) + " SMs, " + std::to_string(push_ctas) + " push"});
  }
  FusedPlan plan;
  plan.push_ctas = push_ctas;
  plan.choice.tile_rows = best->work_rows();
  plan.choice.tile_cols = best->work_cols();
  plan.choice.workers = (sms - comm_ctas_of(push_ctas, topology, *best)) / best->cluster_ctas();
  plan.choice.raster_rows = raster_rows(problem, cols, topology, plan.choice.tile_rows);
  return plan;
}

struct FusedKernel::State {
  Problem problem;
  FusedPlan plan;
  const FormEntry* entry;
  const void* kernel = nullptr;
  bool is_b_n_major;
  DeviceRank rank;
  ScheduleTables tables;
  DeviceTables device;
  Schedule schedule;  // tables on the device; epoch 0
  CallView call;
  CUtensorMap gathered[2] = {};
  int32_t comm_ctas = 0, ctas = 0;

  State(const Problem& p, const FusedPlan& given, const PlanContext& context, const DeviceRank& of, bool n_major)
      : problem(p),
        plan(given),
        entry(&entry_of(given.choice)),
        is_b_n_major(n_major),
        rank(of),
        tables(p, check_plan(given.choice, p, context).choice, context),
        schedule(tables.schedule(0)) {
    const FormNumbers& form = entry->form;
    check_problem(problem, plan);
    kernel = entry->kernel(problem.dtype, is_b_n_major);
    schedule.workers = static_cast<int32_t>(std::clamp<int64_t>(schedule.grid.tiles(), 1, plan.choice.workers));
    schedule.own_in_place = plan.own_in_place;
    comm_ctas = comm_ctas_of(plan.push_ctas, context.topology, form);
    if (comm_ctas == 0)
      schedule.workers = std::max(schedule.workers, (kRankWarps + form.cluster_ctas() - 1) / form.cluster_ctas());
    ctas = static_cast<int32_t>(round_up(comm_ctas + schedule.workers * form.cluster_ctas(), form.launch_ctas));
    schedule.workers = (ctas - comm_ctas) / form.cluster_ctas();
    schedule.push_workers = comm_ctas > 0 ? plan.push_ctas : ctas;
    schedule.forward_workers = comm_ctas > 0 ? 1 : ctas;
    prepare_tile_grid(kernel, form, ctas);
    place_tables();
    for (Epoch half = 0; half < 2; ++half) {
      if (schedule.grid.rows > 0) {
        gathered[half] =
            encode_tensor_map("gathered", gathered_at(half), {form.rows / form.cluster_col_tiles, kStageDepth});
      }
    }
  }

  void place_tables() {
    const auto ranks = static_cast<size_t>(schedule.topology().ranks);
    device.place(schedule.chunks.row_begin, ranks + 1);
    device.place(schedule.chunks.chunk_begin, ranks + 1);
    device.place(schedule.row_order, static_cast<size_t>(schedule.grid.row_blocks));
    place_call(device, rank, ctas, schedule.frame, call);
    device.upload();
  }

  DeviceMatrix gathered_at(Epoch epoch) const {
    return {rank.arenas[static_cast<size_t>(schedule.me().value)] + schedule.frame.arena.half_offset(epoch) +
                schedule.buffers.gathered_offset(0),
            schedule.grid.rows, problem.k, schedule.buffers.pitch_bytes, problem.dtype};
  }

  // Maps that are never used are prefetched all the same.
  CUtensorMap input_map(const DeviceMatrix& a) const {
    if (a.rows == 0 || schedule.grid.rows == 0) return gathered[0];
    return encode_tensor_map("a", a, {entry->form.rows / entry->form.cluster_col_tiles, kStageDepth});
  }

  void check(const FusedOperands& o) const {
    const size_t weights = problem.cols.size();
    check_operand(kCallName, "a", o.a,
                  {problem.rows[static_cast<size_t>(schedule.me().value)], problem.k, problem.dtype});
    check_count("b", o.b.size(), weights);
    check_count("out", o.out.size(), weights);
    if (!o.bias.empty()) check_count("bias", o.bias.size(), weights);
    if (!o.bias.empty() && o.bias_type != DataType::fp32 && o.bias_type != problem.dtype) {
      refuse("bias has a dtype of its own", to_string(o.bias_type), std::string("fp32 or ") + to_string(problem.dtype));
    }
  }

  void place_weight(FusedParameters& to, const FusedOperands& o, size_t w) const {
    const FormNumbers& form = entry->form;
    const int64_t cols = problem.cols[w];
    const std::string b = argument_name("b", w, problem.cols.size()),
                      out = argument_name("out", w, problem.cols.size());
    check_operand(kCallName, b, o.b[w],
                  {is_b_n_major ? problem.k : cols, is_b_n_major ? cols : problem.k, problem.dtype});
    check_operand(kCallName, out, o.out[w], {schedule.grid.rows, cols, problem.dtype});
    if (!o.bias.empty()) to.bias.data[w] = o.bias[w];
    if (schedule.grid.rows == 0) return;
    if (cols == 0) {  // never used, but maps are prefetched
      to.b[w] = to.d[w] = gathered[0];
      return;
    }
    const int32_t b_rows = is_b_n_major ? kStageDepth : form.cols;
    to.b[w] = encode_tensor_map(b.c_str(), o.b[w], {b_rows / form.cluster_row_tiles, kStageDepth});
    to.d[w] = encode_tensor_map(out.c_str(), o.out[w], {kMmaRows, form.box_cols});
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
  std::copy(std::begin(s.gathered), std::end(s.gathered), p.gathered);
  for (size_t w = 0; w < s.problem.cols.size(); ++w) s.place_weight(p, operands, w);
  p.bias.is_fp32 = operands.bias_type == DataType::fp32;
  p.schedule = s.schedule;
  p.call = s.call;
  name_call(p.call, agreed_hash, s.rank);
  p.shard = {static_cast<const std::byte*>(operands.a.data), operands.a.pitch_bytes};
  p.stages_per_tile = static_cast<int32_t>(div_up(s.problem.k, kStageDepth));
  p.comm_ctas = s.comm_ctas;
  p.pace_clocks = s.plan.pace_clocks;
  p.input = s.input_map(operands.a);
  return p;
}

void FusedKernel::launch(FusedParameters& parameters, cudaStream_t stream) const {
  launch_tile_kernel(state_->kernel, state_->entry->form, state_->ctas, &parameters, stream);
}

void FusedKernel::launch(uint64_t agreed_hash, const FusedOperands& operands, cudaStream_t stream) const {
  FusedParameters parameters = this->parameters(agreed_hash, operands);
  launch(parameters, stream);
}

DeviceMatrix FusedKernel::gathered(Epoch epoch) const { return state_->gathered_at(epoch); }
int32_t FusedKernel::ctas() const { return state_->ctas; }
const FormNumbers& FusedKernel::form() const { return state_->entry->form; }

}  // namespace tilewire::ag_gemm

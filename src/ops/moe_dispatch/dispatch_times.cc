#include "ops/moe_dispatch/dispatch_times.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/bytes.h"
#include "schedule/call_cost.h"

namespace tilewire::moe_dispatch {
namespace {

constexpr double kMemoryBytesPerS = 3.2e12;         // of a GPU
constexpr double kTablesS = 25e-6, kTokenS = 3e-9;  // counts and tables of a call, measured

// Blocks of an expert that gets so many rows on the average: an even routing is even on the average only, and the last
// block of an expert is not full. The sum of the chances that a block is begun, by the normal distribution.
double expected_blocks(double rows, int32_t block_rows) {
  double blocks = 1 - std::exp(-rows);
  const double deviation = std::sqrt(rows);
  for (double begin = block_rows; begin < rows + 4 * deviation; begin += block_rows) {
    blocks += std::erfc((begin - rows) / (deviation * std::sqrt(2.0))) / 2;
  }
  return blocks;
}

}  // namespace

DispatchTimes::DispatchTimes(const Problem& problem, const FusedPlan& plan, const PlanContext& context, int64_t cols,
                             int32_t ctas)
    : p_(problem),
      c_(plan.choice),
      x_(context),
      cols_(cols),
      clusters_(std::max(1, ctas / form_of(plan)->cluster_ctas())),
      width_(static_cast<double>(context.topology.ranks) / context.topology.nodes),
      rows_(static_cast<double>(problem.planned_tokens) * problem.top_k),
      own_experts_(static_cast<double>(problem.experts()) / context.topology.ranks),
      rounds_(static_cast<int32_t>(div_up(problem.planned_tokens, plan.choice.block_tokens))),
      phases_(plan.choice.local_first && context.topology.nodes > 1 ? 2 : 1) {
  const CacheUse use = cache_use(context.machine.ranks_per_gpu, 2);
  tile_s_ = tile_clocks(*form_of(plan), problem.h, use) * kFlopsPerClock / context.machine.worker_flops;
}

// To ranks of the own node, whatever their experts; warps copy all of it, the link what is not this rank's own.
double DispatchTimes::moved_local_s() const {
  const double bytes = rows_ / x_.topology.nodes * static_cast<double>(buffers_of(p_, c_, x_).row_pitch);
  return std::max(bytes / x_.machine.copy_bytes_per_s, bytes * (width_ - 1) / width_ / x_.machine.node_bytes_per_s);
}

// A token goes to each other node that has one of its experts once, and is spread there.
double DispatchTimes::moved_remote_s() const {
  const double nodes = x_.topology.nodes;
  if (nodes < 2) return 0;
  const Machine& m = x_.machine;
  const Buffers buffers = buffers_of(p_, c_, x_);
  const auto tokens = static_cast<double>(p_.planned_tokens);
  const double sent = tokens * (nodes - 1) * (1 - std::pow(1 - 1 / nodes, p_.top_k));
  const double chunks = std::max(sent / static_cast<double>(c_.chunk_tokens), rounds_ * (nodes - 1));
  const double handling_s = (m.ranks_per_gpu > 1 ? 1 : 2) * m.command_s;
  const double spread = rows_ * (1 - 1 / nodes) * static_cast<double>(buffers.row_pitch);
  return std::max({sent * static_cast<double>(buffers.token_pitch) / m.network_bytes_per_s, chunks * handling_s,
                   spread / m.copy_bytes_per_s, spread * (width_ - 1) / width_ / m.node_bytes_per_s});
}

// The weights of those of its experts that get rows are read again.
double DispatchTimes::unit_s() const {
  const FormNumbers& form = FusedPlan::kForms[0];
  const double units = static_cast<double>(rounds_) * phases_ * static_cast<double>(c_.pieces);
  const double experts = own_experts_ / static_cast<double>(c_.pieces);
  if (experts <= 0 || cols_ == 0) return 0;
  const double rows = rows_ / units / experts;
  const double tiles =
      experts * expected_blocks(rows, form.work_rows()) * static_cast<double>(div_up(cols_, form.work_cols()));
  const double weight_bytes =
      experts * (1 - std::exp(-rows)) * static_cast<double>(p_.h * cols_ * size_bytes(p_.dtype));
  return std::max(tiles / clusters_ * tile_s_, weight_bytes * std::max(1, x_.machine.ranks_per_gpu) / kMemoryBytesPerS);
}

// Rounds on a clock: what moves is one behind the other, and waits for the slot that it goes to.
Cost DispatchTimes::cost() const {
  const Machine& m = x_.machine;
  const CallFrame frame{.topology = x_.topology, .arena = x_.arena, .me = x_.me};
  const double local_s = moved_local_s(), remote_s = moved_remote_s(), unit = unit_s();
  const double last_s =
      std::max(0.0, tile_s_ - unit);  // clusters go on from unit to unit, and the last tile is a whole one
  const double tables_s = kTablesS + kTokenS * static_cast<double>(p_.planned_tokens) +
                          (x_.topology.nodes > 1 ? m.network_latency_s + 2 * m.command_s : m.node_latency_s);
  const double begin_s = begin_cost_s(frame, m) + tables_s, told_s = m.step_s + m.node_latency_s;
  const double pieces = static_cast<double>(c_.pieces), all = rounds_ * pieces;
  double local = begin_s, remote = begin_s + (x_.topology.nodes > 1 ? m.network_latency_s : 0), computed = begin_s;
  std::vector<double> round_end;
  for (int32_t r = 0; r < rounds_; ++r) {
    const double free = r >= c_.window ? round_end[static_cast<size_t>(r - c_.window)] : 0;
    local = std::max(local, free);
    remote = std::max(remote, free);
    const double whole = std::max(local + local_s / rounds_, remote + remote_s / rounds_) + told_s;
    for (int32_t phase = 0; phase < phases_; ++phase) {
      for (int64_t piece = 0; piece < c_.pieces; ++piece) {
        if (phase == 0) local += local_s / all;
        if (phase + 1 == phases_) remote += remote_s / all;
        double ready = (phases_ == 1 ? std::max(local, remote) : phase == 0 ? local : remote) + told_s;
        if (!c_.is_fused) ready = whole;
        computed = std::max(computed, ready) + unit;
      }
    }
    round_end.push_back(computed + last_s + told_s);
  }
  return {.compute_s = unit * phases_ * all + last_s,
          .communication_s = std::max(local_s, remote_s),
          .total_s = computed + last_s + end_cost_s(frame, m)};
}

}  // namespace tilewire::moe_dispatch

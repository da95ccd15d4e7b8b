#include "ops/moe_dispatch/dispatch_times.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/bytes.h"
#include "ops/moe_dispatch/device_limits.h"
#include "schedule/call_cost.h"

namespace tilewire::moe_dispatch {
namespace {

constexpr double kMemoryBytesPerS = 3.2e12;  // of a GPU
// Bytes that a CTA moves a second before its tiles, and a warp beside them: what they have under way in a look at memory.
constexpr double kCtaBytesPerS = 10e9, kWarpBytesPerS = 1.4e9;
constexpr double kTablesS = 20e-6, kTokenS = 1e-9;  // counts and tables of a call, measured
// Of the time in which weights are read, what is not hidden behind tiles that read them from the cache; measured.
constexpr double kWeightShare = 0.6;

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
      form_(*form_of(plan)),
      x_(context),
      cols_(cols),
      clusters_(std::max(1, ctas / form_.cluster_ctas())),
      width_(static_cast<double>(context.topology.ranks) / context.topology.nodes),
      rows_(static_cast<double>(problem.planned_tokens) * problem.top_k),
      own_experts_(static_cast<double>(problem.experts()) / context.topology.ranks),
      rounds_(static_cast<int32_t>(div_up(problem.planned_tokens, plan.choice.block_tokens))),
      phases_(plan.choice.local_first && context.topology.nodes > 1 ? 2 : 1) {
  const CacheUse use = cache_use(context.machine.ranks_per_gpu, 2);
  tile_s_ = tile_clocks(form_, problem.h, use) * kFlopsPerClock / context.machine.worker_flops;
}

// Rows that all CTAs of the rank move before their tiles: as fast as they have bytes under way, and as memory takes what all
// ranks of the GPU read and write there.
double DispatchTimes::moved_first_s(double bytes) const {
  const double gpu_bytes = 2 * bytes * std::max(1, x_.machine.ranks_per_gpu);
  return std::max(bytes / (clusters_ * form_.cluster_ctas() * kCtaBytesPerS), gpu_bytes / kMemoryBytesPerS);
}
double DispatchTimes::local_bytes() const {
  return rows_ / x_.topology.nodes * static_cast<double>(buffers_of(p_, c_, x_).row_pitch);
}
// To ranks of the own node, whatever their experts; the link takes what is not this rank's own.
double DispatchTimes::linked_s(double bytes) const {
  return bytes * (width_ - 1) / width_ / x_.machine.node_bytes_per_s;
}
// Beside the tiles, by the warps that are left.
double DispatchTimes::moved_beside_s(double bytes) const {
  const int32_t all = helpers_of(clusters_ * form_.cluster_ctas());
  const double warps = x_.topology.nodes > 1 && rounds_ > c_.window ? all / 2 : all;  // some forward, the others push
  return std::max(bytes / (warps * kWarpBytesPerS), linked_s(bytes));
}

// A token goes to each other node that has one of its experts once.
double DispatchTimes::sent_tokens() const {
  const double nodes = x_.topology.nodes;
  return static_cast<double>(p_.planned_tokens) * (nodes - 1) * (1 - std::pow(1 - 1 / nodes, p_.top_k));
}
// And is spread there.
double DispatchTimes::moved_remote_s() const {
  const double nodes = x_.topology.nodes;
  if (nodes < 2) return 0;
  const Machine& m = x_.machine;
  const Buffers buffers = buffers_of(p_, c_, x_);
  const double sent = sent_tokens();
  const double chunks = std::max(sent / static_cast<double>(c_.chunk_tokens), rounds_ * (nodes - 1));
  const double handling_s = (m.ranks_per_gpu > 1 ? 1 : 2) * m.command_s;
  const double spread = rows_ * (1 - 1 / nodes) * static_cast<double>(buffers.row_pitch);
  return std::max({sent * static_cast<double>(buffers.token_pitch) / m.network_bytes_per_s, chunks * handling_s,
                   moved_beside_s(spread)});
}

// The weights of those of its experts that get rows are read again.
double DispatchTimes::unit_s() const {
  const double units = static_cast<double>(rounds_) * phases_ * static_cast<double>(c_.pieces);
  const double experts = own_experts_ / static_cast<double>(c_.pieces);
  if (experts <= 0 || cols_ == 0) return 0;
  const double rows = rows_ / units / experts;
  const double tiles =
      experts * expected_blocks(rows, form_.work_rows()) * static_cast<double>(div_up(cols_, form_.work_cols()));
  const double weight_bytes =
      experts * (1 - std::exp(-rows)) * static_cast<double>(p_.h * cols_ * size_bytes(p_.dtype));
  const double tiles_s = tiles / clusters_ * tile_s_;
  const double weights_s = weight_bytes * std::max(1, x_.machine.ranks_per_gpu) / kMemoryBytesPerS;
  return std::max(weights_s, tiles_s + kWeightShare * std::min(weights_s, tiles_s));
}

// Rounds on a clock: what moves is one behind the other, and waits for the slot that it goes to.
Cost DispatchTimes::cost() const {
  const Machine& m = x_.machine;
  const CallFrame frame{.topology = x_.topology, .arena = x_.arena, .me = x_.me};
  const int32_t rounds = std::max(1, rounds_), slots = static_cast<int32_t>(std::min<int64_t>(c_.window, rounds));
  const int32_t first_rounds = x_.topology.nodes > 1 ? slots : 1;  // that are pushed before the tiles
  const double round_bytes = local_bytes() / rounds, first_bytes = round_bytes * first_rounds;
  const double packed_bytes = sent_tokens() * static_cast<double>(buffers_of(p_, c_, x_).token_pitch) * slots / rounds;
  const double pack_s = moved_first_s(packed_bytes);
  const double first_s = std::max(moved_first_s(first_bytes), linked_s(first_bytes));
  const double later_s = moved_beside_s(round_bytes), remote_s = moved_remote_s(), unit = unit_s();
  const double last_s =
      std::max(0.0, tile_s_ - unit);  // clusters go on from unit to unit, and the last tile is a whole one
  const double tables_s = kTablesS + kTokenS * static_cast<double>(p_.planned_tokens) +
                          (x_.topology.nodes > 1 ? m.network_latency_s + 2 * m.command_s : m.node_latency_s);
  const double begin_s = begin_cost_s(frame, m) + tables_s, told_s = m.step_s + m.node_latency_s;
  const double pieces = static_cast<double>(c_.pieces), all = rounds_ * pieces;
  // The tiles begin when their CTAs have moved the first rows.
  double local = begin_s + pack_s + first_s, computed = local;
  double remote = begin_s + (x_.topology.nodes > 1 ? m.network_latency_s : 0);
  std::vector<double> round_end;
  for (int32_t r = 0; r < rounds_; ++r) {
    const double free = r >= c_.window ? round_end[static_cast<size_t>(r - c_.window)] : 0;
    local = std::max(local, free);
    remote = std::max(remote, free);
    const double own_s = r < first_rounds ? 0 : later_s;
    remote += remote_s / rounds;  // behind its last chunk a source says of all its rows that they are here
    const double whole = std::max(local + own_s, remote) + told_s;
    for (int32_t phase = 0; phase < phases_; ++phase) {
      for (int64_t piece = 0; piece < c_.pieces; ++piece) {
        if (phase == 0) local += own_s / pieces;
        double ready = (phases_ == 1 ? std::max(local, remote) : phase == 0 ? local : remote) + told_s;
        if (!c_.is_fused) ready = whole;
        computed = std::max(computed, ready) + unit;
      }
    }
    round_end.push_back(computed + last_s + told_s);
  }
  const double local_s = first_s + later_s * (rounds - first_rounds);
  return {.compute_s = unit * phases_ * all + last_s,
          .communication_s = std::max(pack_s + local_s, remote_s),
          .total_s = computed + last_s + end_cost_s(frame, m)};
}

}  // namespace tilewire::moe_dispatch

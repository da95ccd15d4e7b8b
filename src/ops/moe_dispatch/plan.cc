#include "ops/moe_dispatch/plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "ops/moe_dispatch/model.h"
#include "ops/moe_dispatch/shared_plan.h"
#include "planning/planner.h"
#include "planning/walked_cost.h"

namespace tilewire::moe_dispatch {
namespace {

// Shared parts are priced with tiles that are each rank's own to choose, large ones: they are walked fast.
constexpr int32_t kPricedTileRows = 256, kPricedTileCols = 2048, kPricedWorkers = 8;

}  // namespace

// See planning/planner.h.
class Planner : public PlannerOf<PlanChoice> {
 public:
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = kPricedAs;

  Planner(const Problem& problem, const PlanContext& context) : PlannerOf(problem, context) { check_placement(p_, x_); }

  int64_t half_bytes(const PlanChoice& c) const { return buffers_of(p_, c, x_).end(); }
  std::string reason_against(const PlanChoice& c) const {
    std::string reason = reason_against_shared(p_, c, x_);
    if (!reason.empty()) return reason;
    const int64_t words = int64_t{x_.topology.ranks} * x_.arena.flags.max_chunks;
    const int64_t rounds = most_rounds(p_, c, x_);
    if (rounds * c.workers > words) {
      return fmt::format("{} rounds of {} workers need more than {} words", rounds, c.workers, words);
    }
    return "";
  }

  std::vector<PlanChoice> shared_candidates() const { return shared_choices(p_, x_); }
  // By agreed values alone.
  double shared_cost_s(const PlanChoice& c) const {
    if (p_.counts_only) return 0;
    PlanChoice choice = c;
    choice.tile_rows = kPricedTileRows;
    choice.tile_cols = kPricedTileCols;
    choice.workers = kPricedWorkers;
    Problem problem = p_;
    problem.cols = kPricedCols;
    problem.out_dtype = DataType::bf16;
    return walked_s<RankModel>(problem, choice, x_);
  }

  std::vector<PlanChoice> candidates(const PlanChoice& shared) const {
    PlanChoice choice = shared;
    choice.workers = x_.workers;
    std::vector<PlanChoice> choices;
    for (const int32_t rows : {128, 32}) {
      choice.tile_rows = rows;
      choices.push_back(choice);
      if (p_.counts_only) return choices;
    }
    choice.tile_rows = 128;
    choice.is_fused = false;
    choices.push_back(choice);
    return choices;
  }
  // Communication alone: a call whose weights have no columns.
  Cost predict(const PlanChoice& choice) const {
    if (p_.counts_only) return {};
    Problem bare = p_;
    bare.cols = 0;
    return walked_cost<RankModel>(p_, choice, x_, longest_product_s(choice), walked_s<RankModel>(bare, choice, x_));
  }

 private:
  double longest_product_s(const PlanChoice& choice) const {
    const SampledTables tables(p_, choice, x_);
    const Schedule schedule = tables.schedule(1);
    double longest_s = 0;
    for (int32_t worker = 0; worker < choice.workers; ++worker) {
      double alone_s = 0;
      TileWork w;
      for (ComputeRole role(schedule, worker); role.next(w);) {
        if (w.is_gate || w.is_round_end || w.columns.is_gather_copy) continue;
        const double flops = gemm_tile_flops(w.rows.rows(), w.columns.end - w.columns.begin, p_.h);
        alone_s += x_.machine.step_s + flops / x_.machine.worker_flops;
      }
      longest_s = std::max(longest_s, alone_s);
    }
    return longest_s;
  }
};

namespace {

// For any rank.
RoutingLimits limits_of(const Problem& p, const PlanChoice& c, const PlanContext& context) {
  const Topology& t = context.topology;
  std::vector<int32_t> of_rank(static_cast<size_t>(t.ranks), 0), of_node(static_cast<size_t>(t.nodes), 0);
  for (const int32_t rank : p.rank_of_expert) {
    ++of_rank[static_cast<size_t>(rank)];
    ++of_node[static_cast<size_t>(t.node(Rank{rank}).value)];
  }
  RoutingLimits n{.ranks = t.ranks,
                  .nodes = t.nodes,
                  .experts = p.experts(),
                  .places = *std::max_element(of_node.begin(), of_node.end()),
                  .own = *std::max_element(of_rank.begin(), of_rank.end()),
                  .pieces = static_cast<int32_t>(c.pieces),
                  .rounds = narrow<int32_t>(most_rounds(p, c, context)),
                  .tokens = p.counts_only ? 0 : p.most_tokens,
                  .top_k = p.top_k,
                  .targets = std::min(p.top_k, t.nodes - 1)};
  for (int32_t node = 0; node < t.nodes; ++node) n.width = std::max(n.width, t.ranks_on(Node{node}));
  return n;
}

// How many sources enter a node by the same rank, at most.
int32_t most_entries(const Topology& t) {
  int32_t most = 0;
  for (int32_t p = 0; p < t.ranks; ++p) {
    int32_t count = 0;
    for (int32_t s = 0; s < t.ranks; ++s) {
      count += !t.same_node(Rank{s}, Rank{p}) && t.rail_partner(Rank{s}, t.node(Rank{p})) == Rank{p} ? 1 : 0;
    }
    most = std::max(most, count);
  }
  return most;
}

}  // namespace

Buffers buffers_of(const Problem& p, const PlanChoice& c, const PlanContext& context) {
  const Topology& t = context.topology;
  const int64_t row_pitch = round_up(p.h * size_bytes(p.dtype), kWireUnitBytes);
  Buffers b{
      .arena = context.arena, .tables = {}, .row_pitch = row_pitch, .token_pitch = header_bytes(p.top_k) + row_pitch};
  const int64_t counts = checked_mul(most_rounds(p, c, context), p.experts() + t.nodes);
  b.record_bytes = round_up((kRecordHead + counts) * int64_t{sizeof(int32_t)}, kWireUnitBytes);
  b.tables = limits_of(p, c, context);
  b.tables_bytes = round_up(routing_bytes(b.tables), kWireUnitBytes);
  if (p.counts_only) return b;
  b.block_tokens = c.block_tokens;
  b.window = static_cast<int32_t>(c.window);
  b.slot_rows = std::min(p.most_rows, checked_mul(checked_mul(c.block_tokens, t.ranks), p.top_k));
  b.outbox_tokens = checked_mul(p.most_tokens, std::min(p.top_k, t.nodes - 1));
  b.entries = most_entries(t);
  // What end() multiplies fits 64 bits.
  const int64_t staged = checked_mul(b.entries, checked_mul(c.block_tokens, b.token_pitch));
  checked_mul(checked_add(staged, checked_mul(b.slot_rows, row_pitch + int64_t{sizeof(RowOrigin)})), c.window);
  checked_mul(b.outbox_tokens, b.token_pitch);
  return b;
}

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : experts_(
          std::make_unique<ExpertTables>(problem.rank_of_expert, context.topology, context.me, choice.local_first)) {
  Schedule& s = schedule_;
  s.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
  experts_->fill(s);
  s.buffers = buffers_of(problem, choice, context);
  s.columns = {.weights = 1, .tile_cols = choice.tile_cols, .has_gather_copy = true};
  s.columns.cols[0] = problem.cols;
  s.top_k = problem.top_k;
  s.window = s.buffers.window;
  s.pieces = static_cast<int32_t>(choice.pieces);
  s.chunk_tokens = static_cast<int32_t>(std::min(choice.chunk_tokens, choice.block_tokens));
  s.counts_only = problem.counts_only;
  s.tokens = problem.planned_tokens;
  s.tile_rows = choice.tile_rows;
  s.raster_rows = choice.raster_rows;
  s.workers = choice.workers;
  s.is_fused = choice.is_fused;
}

Schedule ScheduleTables::schedule(Epoch epoch) const {
  Schedule s = schedule_;
  s.frame.epoch = epoch;
  return s;
}

}  // namespace tilewire::moe_dispatch

template struct tilewire::PlansOf<tilewire::moe_dispatch::PlanChoice>;

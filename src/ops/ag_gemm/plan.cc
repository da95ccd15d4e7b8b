#include "ops/ag_gemm/plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "executor/planner.h"
#include "ops/ag_gemm/arrivals.h"
#include "ops/ag_gemm/cost.h"
#include "ops/ag_gemm/row_order.h"

namespace tilewire::ag_gemm {
namespace {

Buffers buffers_of(const Problem& p, const ArenaLayout& arena) {
  return {.arena = arena, .pitch_bytes = round_up(p.k * size_bytes(p.dtype), kWireUnitBytes)};
}

// The nodes whose ranks may be the last to have all chunks: the one with fewest ranks, where all that comes enters by
// few ports; the one with most, which forwards most; and those with most and with fewest rows of a rank, which send and
// receive most.
std::vector<Node> telling_nodes(const Topology& t, const std::vector<int64_t>& rows) {
  std::vector<int64_t> rows_a_rank(static_cast<size_t>(t.nodes), 0);
  for (int32_t r = 0; r < t.ranks; ++r)
    rows_a_rank[static_cast<size_t>(t.node(Rank{r}).value)] += rows[static_cast<size_t>(r)];
  for (int32_t n = 0; n < t.nodes; ++n) rows_a_rank[static_cast<size_t>(n)] /= t.ranks_on(Node{n});
  Node narrow{0}, wide{0}, full{0}, bare{0};
  const auto rows_on = [&](Node n) { return rows_a_rank[static_cast<size_t>(n.value)]; };
  for (int32_t i = 1; i < t.nodes; ++i) {
    const Node n{i};
    if (t.ranks_on(n) < t.ranks_on(narrow)) narrow = n;
    if (t.ranks_on(n) > t.ranks_on(wide)) wide = n;
    if (rows_on(n) > rows_on(full)) full = n;
    if (rows_on(n) < rows_on(bare)) bare = n;
  }
  std::vector<Node> nodes;
  for (const Node n : {narrow, wide, full, bare}) {
    if (std::find(nodes.begin(), nodes.end(), n) == nodes.end()) nodes.push_back(n);
  }
  return nodes;
}

// See executor/planner.h.
class Planner {
 public:
  using Problem = ag_gemm::Problem;
  using Choice = PlanChoice;
  static constexpr const char* kName = kCallName;
  static constexpr const char* kSharedCost = "communication alone";
  static constexpr const char* kSharedAdvice = "raise TILEWIRE_MAX_CHUNKS_PER_SOURCE on all ranks";

  Planner(const Problem& problem, const PlanContext& context) : p_(problem), x_(context) {
    p_.validate();
    check_one_count_a_rank(kName, p_.rows.size(), x_);
  }

  const Problem& problem() const { return p_; }
  const PlanContext& context() const { return x_; }
  int64_t half_bytes(const PlanChoice&) const { return buffers_of(p_, x_.arena).half_bytes(p_.total_rows()); }
  std::string reason_against(const PlanChoice& c) const {
    return reason_against_chunks(c.chunk_rows, most_rows(), buffers_of(p_, x_.arena).pitch_bytes, x_);
  }

  std::vector<PlanChoice> shared_candidates() const {
    std::vector<PlanChoice> choices;
    for (const int64_t rows : doubling_sizes(16, most_rows())) {
      choices.emplace_back().chunk_rows = rows;
    }
    return choices;
  }
  // When the last rank has all chunks, if all have as many push workers. Walked once for each chunk size and number.
  double shared_cost_s(const PlanChoice& c) {
    const auto [known, is_new] = gathered_s_.try_emplace(moved_by(c), 0);
    if (!is_new) return known->second;
    for (const Node node : telling_nodes(x_.topology, p_.rows)) {
      PlanContext there = x_;
      there.me = x_.topology.rank_at(node, LocalRank{0});
      known->second = std::max(known->second, last_arrival_s(ScheduleTables(p_, c, there).arrivals_s()));
    }
    return known->second;
  }

  // With one push worker: docs/decisions/0019-push-workers-are-given.md.
  //
  // One row block at a time hides most of the way of the others; several together leave fewer workers idle where there
  // are few columns, and weights in cache.
  std::vector<PlanChoice> candidates(const PlanChoice& shared) const {
    std::vector<PlanChoice> choices;
    for (const auto& [rows, cols] : {std::pair{128, 256}, std::pair{64, 256}, std::pair{32, 256}, std::pair{16, 128}}) {
      PlanChoice choice = shared;
      choice.workers = x_.workers;
      choice.tile_rows = rows;
      choice.tile_cols = cols;
      for (const int32_t raster_rows : {1, 4}) {
        choice.raster_rows = raster_rows;
        if (raster_rows > 1 || x_.topology.ranks > 1) choices.push_back(choice);
      }
      choice.is_fused = false;
      choices.push_back(choice);
    }
    // Of equals the first is taken.
    std::stable_partition(choices.begin(), choices.end(), [](const PlanChoice& c) { return c.is_fused; });
    return choices;
  }
  Cost predict(const PlanChoice& choice) {
    std::vector<std::vector<double>>& known_s = arrivals_s_[moved_by(choice)];
    const ScheduleTables tables(p_, choice, x_, known_s);
    known_s = tables.arrivals_s();
    const auto local = static_cast<size_t>(x_.topology.local(x_.me).value);
    const double gathered_s = std::max(last_arrival_s(known_s), shared_cost_s(choice));
    return ag_gemm::predict(tables.schedule(1), p_.k, known_s[local], gathered_s, x_.machine);
  }

 private:
  // The numbers of a plan that arrivals depend on.
  using Movers = std::pair<int64_t, int32_t>;
  static Movers moved_by(const PlanChoice& c) { return {c.chunk_rows, c.push_workers}; }
  int64_t most_rows() const { return *std::max_element(p_.rows.begin(), p_.rows.end()); }

  const Problem& p_;
  const PlanContext& x_;
  std::map<Movers, std::vector<std::vector<double>>> arrivals_s_;  // at the ranks of the own node
  std::map<Movers, double> gathered_s_;
};

}  // namespace

Plan make_plan(const Problem& problem, const PlanContext& context) { return best_plan(Planner(problem, context)); }

Plan check_plan(const PlanChoice& choice, const Problem& problem, const PlanContext& context) {
  return given_plan(Planner(problem, context), choice);
}

void check_choice(const PlanChoice& choice, const Problem& problem, const PlanContext& context) {
  check_given(Planner(problem, context), choice);
}

namespace {

int32_t row_blocks_of(const Problem& problem, int32_t tile_rows) {
  const int64_t blocks = div_up(problem.total_rows(), tile_rows);
  if (blocks > INT32_MAX) {
    throw Error(ErrorKind::resource, {.what = "a call has too many rows",
                                      .where = kCallName,
                                      .values = fmt::format("{} rows, {} at a time", problem.total_rows(), tile_rows),
                                      .limit = fmt::format("at most {} such blocks", INT32_MAX),
                                      .advice = "bring fewer rows to a call"});
  }
  return static_cast<int32_t>(blocks);
}

}  // namespace

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context,
                               std::vector<std::vector<double>> arrivals_s)
    : chunks_(problem.rows, choice.chunk_rows, problem.k > 0), arrivals_s_(std::move(arrivals_s)) {
  Schedule& s = schedule_;
  s.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
  s.chunks = chunks_.view();
  s.buffers = buffers_of(problem, context.arena);
  s.columns.weights = static_cast<int32_t>(problem.cols.size());
  s.columns.tile_cols = choice.tile_cols;
  s.columns.has_gather_copy = problem.wants_gathered && problem.k > 0;
  std::copy(problem.cols.begin(), problem.cols.end(), s.columns.cols);
  s.grid = {.rows = problem.total_rows(),
            .tile_rows = choice.tile_rows,
            .row_blocks = row_blocks_of(problem, choice.tile_rows),
            .col_blocks = s.columns.blocks(),
            .raster_rows = choice.raster_rows};
  s.workers = choice.workers;
  s.push_workers = choice.push_workers;
  s.is_fused = choice.is_fused;
  if (arrivals_s_.empty()) arrivals_s_ = expected_arrivals_s(s, s.topology().node(s.me()), context.machine);
  row_order_ = expected_row_order(s, arrivals_s_[static_cast<size_t>(s.topology().local(s.me()).value)]);
}

Schedule ScheduleTables::schedule(Epoch epoch) const {
  Schedule s = schedule_;
  s.frame.epoch = epoch;
  s.chunks = chunks_.view();
  s.row_order = row_order_.data();
  return s;
}

}  // namespace tilewire::ag_gemm

#include "ops/ag_gemm/plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

#include "base/bytes.h"
#include "ops/ag_gemm/cost.h"
#include "ops/ag_gemm/row_order.h"

namespace tilewire::ag_gemm {
namespace {

int64_t pitch_bytes(const Problem& p) { return round_up(p.k * size_bytes(p.dtype), kWireUnitBytes); }

// Why a choice cannot be used, or "".
std::string reason_against(const PlanChoice& c, const Problem& p, const PlanContext& x) {
  const auto outside = [](const char* name, int64_t value, int64_t low, int64_t high) {
    return value < low || value > high ? fmt::format("{} = {}, must be in {}..{}", name, value, low, high) : "";
  };
  for (const std::string& text :
       {outside("chunk_rows", c.chunk_rows, 1, int64_t{1} << 40), outside("tile_rows", c.tile_rows, 1, 4096),
        outside("tile_cols", c.tile_cols, 1, 4096), outside("raster_rows", c.raster_rows, 1, 1 << 20),
        outside("workers", c.workers, 1, 4096), outside("load_ahead", c.cursors.load_ahead, 0, 64),
        outside("publish_behind", c.cursors.publish_behind, 0, 64)}) {
    if (!text.empty()) return text;
  }
  const int64_t most_rows = *std::max_element(p.rows.begin(), p.rows.end());
  const int64_t chunks = p.k == 0 ? 0 : div_up(most_rows, c.chunk_rows);
  if (chunks > x.arena.flags.max_chunks) {
    return fmt::format("chunk_rows = {} cuts {} rows into {} chunks, the flag area has room for {} a source",
                       c.chunk_rows, most_rows, chunks, x.arena.flags.max_chunks);
  }
  const int64_t chunk_bytes = checked_mul(std::min(c.chunk_rows, most_rows), pitch_bytes(p));
  if (chunk_bytes > CommandLimits::kChunkBytes) {
    return fmt::format("a chunk of {} bytes, a command moves at most {}", chunk_bytes, CommandLimits::kChunkBytes);
  }
  return "";
}

int64_t half_bytes(const Problem& p, const PlanContext& x) {
  return checked_add(x.arena.data_offset(), p.k == 0 ? 0 : checked_mul(p.total_rows(), pitch_bytes(p)));
}

void check_problem(const Problem& p, const PlanContext& x) {
  p.validate();
  check_one_count_a_rank(kCallName, p.rows.size(), x);
  check_reserve(kCallName, "the gathered matrix", half_bytes(p, x), x);
}

Plan priced(const PlanChoice& choice, const Problem& problem, const PlanContext& context) {
  const Cost cost = predict(problem, choice, context);
  return {.choice = choice,
          .predicted_s = cost.total_s,
          .compute_s = cost.compute_s,
          .communication_s = cost.communication_s,
          .half_bytes = half_bytes(problem, context),
          .candidates = {}};
}

// Chunk sizes from 16 rows up to a whole shard, by doubling; the ranks all walk the same list.
std::vector<int64_t> chunk_sizes(const Problem& p) {
  const int64_t most_rows = std::max<int64_t>(1, *std::max_element(p.rows.begin(), p.rows.end()));
  std::vector<int64_t> sizes;
  for (int64_t rows = 16; rows < most_rows; rows *= 2) sizes.push_back(rows);
  sizes.push_back(most_rows);
  return sizes;
}

// The shared part: by communication alone, which depends on agreed values only.
int64_t choose_chunk_rows(const Problem& problem, const PlanContext& context, std::vector<Candidate>& lost) {
  PlanChoice choice;
  int64_t best = 0;
  double best_s = 0;
  for (const int64_t rows : chunk_sizes(problem)) {
    choice.chunk_rows = rows;
    const std::string against = reason_against(choice, problem, context);
    const double seconds = against.empty() ? exposed_communication_s(problem, rows, context) : 0;
    if (against.empty() && (best == 0 || seconds < best_s)) {
      best = rows;
      best_s = seconds;
    }
    lost.push_back({choice, seconds, against});
  }
  if (best == 0) {
    throw Error(ErrorKind::resource, {.what = "no chunk size fits",
                                      .where = fmt::format("{} of {}", kCallName, problem.agreed_text()),
                                      .values = lost.back().verdict,
                                      .advice = "raise TILEWIRE_MAX_CHUNKS_PER_SOURCE on all ranks"});
  }
  for (Candidate& c : lost) {
    if (c.verdict.empty()) {
      c.verdict = fmt::format("chunks of {} rows expose {:.1f} us of communication, {} rows {:.1f} us",
                              c.choice.chunk_rows, c.predicted_s * 1e6, best, best_s * 1e6);
    }
  }
  lost.erase(std::remove_if(lost.begin(), lost.end(), [&](const Candidate& c) { return c.choice.chunk_rows == best; }),
             lost.end());
  return best;
}

}  // namespace

Plan make_plan(const Problem& problem, const PlanContext& context) {
  check_problem(problem, context);
  std::vector<Candidate> candidates;
  PlanChoice base;
  base.chunk_rows = choose_chunk_rows(problem, context, candidates);
  base.workers = context.workers;
  for (const bool is_fused : {true, false}) {
    for (const auto& [rows, cols] : {std::pair{128, 256}, std::pair{64, 256}, std::pair{32, 256}, std::pair{16, 128}}) {
      PlanChoice choice = base;
      choice.is_fused = is_fused;
      choice.tile_rows = rows;
      choice.tile_cols = cols;
      candidates.push_back({choice, predict(problem, choice, context).total_s, ""});
    }
  }
  Plan best = priced(choose_cheapest(candidates).choice, problem, context);
  best.candidates = std::move(candidates);
  return best;
}

Plan check_plan(const PlanChoice& choice, const Problem& problem, const PlanContext& context) {
  check_problem(problem, context);
  const std::string against = reason_against(choice, problem, context);
  if (!against.empty()) {
    throw Error(ErrorKind::invalid_argument, {.what = "the given plan cannot be used",
                                              .where = fmt::format("{} of {}", kCallName, problem.text()),
                                              .values = against,
                                              .advice = "leave plan out to have one made"});
  }
  Plan plan = priced(choice, problem, context);
  plan.candidates.push_back({choice, plan.predicted_s, "given"});
  return plan;
}

Plan plan_of(const Problem& problem, const std::string& json, const PlanContext& context) {
  return json.empty() ? make_plan(problem, context) : check_plan(plan_from_json(json), problem, context);
}

std::string agreed_text(const Problem& problem, const PlanChoice& choice) {
  return fmt::format("{}, chunks of {} rows", problem.agreed_text(), choice.chunk_rows);
}

ScheduleTables::ScheduleTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : chunks_(problem.rows, choice.chunk_rows, problem.k > 0) {
  Schedule& s = schedule_;
  s.frame = {.topology = context.topology, .arena = context.arena, .me = context.me};
  s.chunks = chunks_.view();
  s.buffers = {.arena = context.arena, .pitch_bytes = pitch_bytes(problem)};
  s.columns.weights = static_cast<int32_t>(problem.cols.size());
  s.columns.tile_cols = choice.tile_cols;
  s.columns.has_gather_copy = problem.wants_gathered && problem.k > 0;
  std::copy(problem.cols.begin(), problem.cols.end(), s.columns.cols);
  s.grid = {.rows = problem.total_rows(),
            .tile_rows = choice.tile_rows,
            .row_blocks = narrow<int32_t>(div_up(problem.total_rows(), choice.tile_rows)),
            .col_blocks = s.columns.blocks(),
            .raster_rows = choice.raster_rows};
  s.workers = choice.workers;
  s.is_fused = choice.is_fused;
  row_order_ = expected_row_order(s, context.machine);
}

Schedule ScheduleTables::schedule(Epoch epoch) const {
  Schedule s = schedule_;
  s.frame.epoch = epoch;
  s.chunks = chunks_.view();
  s.row_order = row_order_.data();
  return s;
}

}  // namespace tilewire::ag_gemm

// Random calls of ring attention, for sequences in the simulator and for soaks.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "ops/attention/call_fixture.h"
#include "ops/attention/model.h"
#include "ops/attention/plan.h"
#include "testing/simulation_test_support.h"

namespace tilewire::attention {

// So many numbers below `total`, each once, in any order, dealt out.
inline std::vector<Positions> shuffled_positions(const std::vector<int64_t>& rows, Dice& dice) {
  std::vector<int64_t> all(static_cast<size_t>(std::accumulate(rows.begin(), rows.end(), int64_t{0})));
  std::iota(all.begin(), all.end(), 0);
  // Blocks of a few rows change places, so that some chunks are seen by few.
  const int64_t block = 1 + dice.below(20);
  for (size_t i = 0; i + static_cast<size_t>(block) < all.size(); ++i) {
    if (!dice.one_in(block)) continue;
    const auto to = static_cast<size_t>(dice.below(static_cast<int64_t>(all.size()) - block));
    std::swap_ranges(all.begin() + static_cast<int64_t>(i), all.begin() + static_cast<int64_t>(i) + 1,
                     all.begin() + static_cast<int64_t>(to));
  }
  std::vector<Positions> positions;
  int64_t begin = 0;
  for (const int64_t count : rows) {
    positions.push_back(runs_of(std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(count))));
    begin += count;
  }
  return positions;
}

// Where a few documents begin among so many rows; empty ones and pads among them.
inline std::vector<int64_t> random_documents(int64_t rows, size_t documents, Dice& dice) {
  std::vector<int64_t> begins{0};
  for (size_t d = 0; d < documents; ++d) begins.push_back(dice.below(rows + 1));
  std::sort(begins.begin(), begins.end());
  return begins;
}

inline Problem random_problem(int32_t ranks, int64_t most_rows, Dice& dice) {
  Problem p{.batch = 1 + dice.below(2),
            .q_heads = 0,
            .kv_heads = dice.one_in(12) ? 0 : 1 + dice.below(3),
            .head_dim = 64,
            .dtype = dice.one_in(2) ? DataType::bf16 : DataType::fp16,
            .is_causal = !dice.one_in(3),
            .placement = dice.pick<Placement>({Placement::contiguous, Placement::zigzag, Placement::given})};
  p.q_heads = p.kv_heads * (1 + dice.below(2));
  p.out_dtype = p.dtype;
  for (int32_t r = 0; r < ranks; ++r) {
    p.rows.push_back(dice.one_in(4) ? 0 : dice.below(most_rows));
    p.kv_rows.push_back(dice.one_in(4) ? 0 : dice.below(most_rows));
  }
  if (dice.one_in(2)) p.kv_rows = p.rows;
  if (p.placement == Placement::zigzag) {
    p.rows = zigzag_rows(p.total_rows(), ranks);
    p.kv_rows = zigzag_rows(p.total_kv_rows(), ranks);
  }
  if (p.placement == Placement::given) {
    p.given = shuffled_positions(p.rows, dice);
    p.given_kv = p.rows == p.kv_rows ? p.given : shuffled_positions(p.kv_rows, dice);
  }
  if (dice.one_in(3)) {
    const auto documents = static_cast<size_t>(1 + dice.below(4));
    p.documents = random_documents(p.total_rows(), documents, dice);
    p.kv_documents = p.rows == p.kv_rows ? p.documents : random_documents(p.total_kv_rows(), documents, dice);
  }
  return p;
}

// The shared part, then the own part of each rank.
inline PlanChoice random_shared(const Problem& p, int32_t ranks, Dice& dice) {
  PlanChoice choice{
      .is_step_major = ranks > 1 && dice.one_in(3), .chunk_rows = kKeyBlock * (1 + dice.below(2)), .cursors = {}};
  if (!dice.one_in(3)) choice.window = 1 + dice.below(choice.is_step_major ? ranks : p.pairs() + 1);
  return choice;
}
inline PlanChoice with_own(PlanChoice choice, Dice& dice) {
  choice.is_fused = choice.window > 0 || !dice.one_in(4);
  choice.tile_rows = static_cast<int32_t>(8 + dice.below(60));
  choice.group_pairs = static_cast<int32_t>(1 + dice.below(3));
  choice.workers = static_cast<int32_t>(1 + dice.below(3));
  choice.cursors = {.load_ahead = static_cast<int32_t>(dice.below(4)),
                    .publish_behind = static_cast<int32_t>(dice.below(4))};
  return choice;
}

inline void add_random_call(OpSimulation& simulation, Dice& dice) {
  const Problem problem = random_problem(simulation.ranks(), 90, dice);
  const PlanChoice shared = random_shared(problem, simulation.ranks(), dice);
  std::vector<PlanChoice> choices;
  for (int32_t r = 0; r < simulation.ranks(); ++r) choices.push_back(with_own(shared, dice));
  simulation.add_call<RankModel>(problem, choices);
}

}  // namespace tilewire::attention

namespace tilewire {

template <>
struct OpRandomCalls<attention::Op> {
  static void add(OpSimulation& simulation, Dice& dice) { attention::add_random_call(simulation, dice); }

  static attention::TestCall call(const Layout& layout, Dice& dice) {
    const int32_t ranks = ranks_of(layout);
    attention::TestCall call{.problem = attention::random_problem(ranks, 90, dice)};
    call.problem.out_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.is_bhsd = dice.one_in(2);
    call.salt = static_cast<uint64_t>(dice.below(1000));
    if (dice.one_in(2)) {
      const attention::PlanChoice shared = attention::random_shared(call.problem, ranks, dice);
      call.plan_json = to_json(attention::with_own(shared, dice));
    }
    return call;
  }
};

}  // namespace tilewire

// Random calls of MoE dispatch, for sequences in the simulator and for soaks.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ops/moe_dispatch/call_fixture.h"
#include "ops/moe_dispatch/model.h"
#include "testing/simulation_test_support.h"

namespace tilewire {

template <>
struct OpRandomCalls<moe_dispatch::Op> {
  static void add(OpSimulation& simulation, Dice& dice) {
    const int32_t ranks = simulation.ranks();
    const auto experts = static_cast<int32_t>(1 + dice.below(7)), top_k = static_cast<int32_t>(1 + dice.below(3));
    std::vector<int64_t> tokens;
    for (int32_t r = 0; r < ranks; ++r) tokens.push_back(dice.one_in(3) ? 0 : dice.below(9));
    moe_dispatch::Routes routes =
        moe_dispatch::draw_all_routes(skew(dice), tokens, top_k, experts, static_cast<uint64_t>(dice.below(1 << 20)));
    moe_dispatch::Problem problem{.rank_of_expert = placement(dice, experts, ranks),
                                  .h = dice.one_in(5) ? 0 : 1 + dice.below(20),
                                  .top_k = top_k,
                                  .most_rows = dice.one_in(5) ? dice.below(6) : 8 * 3 * ranks,
                                  .planned_tokens = 4,
                                  .most_tokens = 9};
    problem.cols = dice.one_in(5) ? 0 : dice.below(20);
    moe_dispatch::PlanChoice shared = choice(dice, 1 + dice.below(5), 8);
    std::vector<moe_dispatch::PlanChoice> choices;
    for (int32_t r = 0; r < ranks; ++r) {
      moe_dispatch::PlanChoice own = choice(dice, 1, 8);
      own.block_tokens = shared.block_tokens;
      own.window = shared.window;
      own.chunk_tokens = shared.chunk_tokens;
      own.pieces = shared.pieces;
      own.local_first = shared.local_first;
      choices.push_back(own);
    }
    const auto routed = std::make_shared<moe_dispatch::RoutedRanks>(std::move(routes), problem.most_rows);
    simulation.keep(routed);
    simulation.add_call<moe_dispatch::RankModel>(problem, choices, {},
                                                 [&](moe_dispatch::Schedule& s) { routed->apply(s); });
  }

  static moe_dispatch::TestCall call(const Layout& layout, Dice& dice) {
    const int32_t ranks = ranks_of(layout);
    const auto experts = static_cast<int32_t>(1 + dice.below(40));
    moe_dispatch::TestCall call;
    for (int32_t r = 0; r < ranks; ++r) call.tokens.push_back(dice.one_in(3) ? 0 : dice.below(60));
    call.rank_of_expert = placement(dice, experts, ranks);
    call.h = dice.one_in(8) ? 0 : dice.below(50);
    call.cols = dice.one_in(8) ? 0 : dice.below(30);
    call.top_k = static_cast<int32_t>(1 + dice.below(8));
    call.skew = skew(dice);
    call.max_tokens = 60 * 8 * ranks;
    call.max_source_tokens = 60;
    call.dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16});
    call.out_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.is_64_bit = dice.one_in(2);
    call.is_n_by_k = dice.one_in(2);
    call.salt = static_cast<uint64_t>(dice.below(1000));
    if (dice.one_in(2)) call.plan_json = to_json(choice(dice, 4 + dice.below(60), 8 + dice.below(24)));
    if (dice.one_in(4)) {  // counted
      call.max_tokens.reset();
      call.max_source_tokens.reset();
    }
    return call;
  }

 private:
  static moe_dispatch::Skew skew(Dice& dice) {
    using moe_dispatch::Skew;
    return dice.pick<Skew>({Skew::uniform, Skew::zipf, Skew::one, Skew::with_none});
  }
  // Some ranks have many experts and some have none.
  static std::vector<int32_t> placement(Dice& dice, int32_t experts, int32_t ranks) {
    std::vector<int32_t> rank_of;
    for (int32_t e = 0; e < experts; ++e) rank_of.push_back(static_cast<int32_t>(dice.below(ranks)));
    return rank_of;
  }
  static moe_dispatch::PlanChoice choice(Dice& dice, int64_t block_tokens, int64_t tile_cols) {
    return {.block_tokens = block_tokens,
            .window = 1 + dice.below(3),
            .chunk_tokens = 1 + block_tokens / (1 + dice.below(4)),
            .pieces = 1 + dice.below(3),
            .local_first = dice.one_in(2),
            .is_fused = !dice.one_in(4),
            .tile_rows = static_cast<int32_t>(1 + dice.below(20)),
            .tile_cols = static_cast<int32_t>(tile_cols),
            .raster_rows = static_cast<int32_t>(1 + dice.below(3)),
            .workers = static_cast<int32_t>(1 + dice.below(3)),
            .cursors = {.load_ahead = static_cast<int32_t>(dice.below(4)),
                        .publish_behind = static_cast<int32_t>(dice.below(4))}};
  }
};

}  // namespace tilewire

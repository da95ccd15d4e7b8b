// Random calls of GEMM+ReduceScatter, for sequences in the simulator and for soaks.
#pragma once

#include <vector>

#include "executor/simulation_test_support.h"
#include "ops/gemm_rs/call_fixture.h"
#include "ops/gemm_rs/simulation.h"

namespace tilewire {

template <>
struct OpRandomCalls<gemm_rs::Op> {
  static void add(OpSimulation& simulation, Dice& dice) {
    const int32_t ranks = simulation.ranks();
    const gemm_rs::Problem problem{.rows = random_rows(ranks, 9, dice),
                                   .n = dice.one_in(5) ? 0 : 1 + dice.below(20),
                                   .wire_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32}),
                                   .k = 8};
    const gemm_rs::PlanChoice shared = shared_choice(dice, 4, 10);
    std::vector<gemm_rs::PlanChoice> choices;
    for (int32_t r = 0; r < ranks; ++r) choices.push_back(own_choice(shared, dice));
    simulation.add_call<gemm_rs::RankModel>(problem, choices);
  }

  static gemm_rs::TestCall call(const Layout& layout, Dice& dice) {
    gemm_rs::TestCall call{.layout = layout,
                           .rows = random_rows(ranks_of(layout), 60, dice),
                           .k = {},
                           .n = dice.one_in(8) ? 0 : dice.below(48)};
    for (int32_t r = 0; r < ranks_of(layout); ++r) call.k.push_back(dice.one_in(5) ? 0 : dice.below(40));
    call.dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.out_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    if (dice.one_in(2)) call.wire_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.has_bias = dice.one_in(3);
    call.has_residual = dice.one_in(3);
    call.is_n_by_k = dice.one_in(2);
    call.is_a_transposed = dice.one_in(4);
    call.salt = static_cast<uint64_t>(dice.below(1000));
    if (dice.one_in(3)) call.plan_json = to_json(own_choice(shared_choice(dice, 20 + dice.below(20), 16), dice));
    return call;
  }

 private:
  static std::vector<int64_t> random_rows(int32_t ranks, int64_t most, Dice& dice) {
    std::vector<int64_t> rows;
    for (int32_t r = 0; r < ranks; ++r) rows.push_back(dice.one_in(3) ? 0 : dice.below(most));
    return rows;
  }
  static gemm_rs::PlanChoice shared_choice(Dice& dice, int64_t chunk_rows, int64_t chunk_cols) {
    return {.chunk_rows = chunk_rows + dice.below(6),
            .chunk_cols = chunk_cols + dice.below(8),
            .window = dice.one_in(2) ? 0 : 1 + dice.below(4),
            .cursors = {}};
  }
  static gemm_rs::PlanChoice own_choice(gemm_rs::PlanChoice choice, Dice& dice) {
    choice.is_fused = choice.window > 0 || !dice.one_in(3);
    choice.workers = static_cast<int32_t>(1 + dice.below(3));
    choice.reduce_workers = static_cast<int32_t>(1 + dice.below(3));
    choice.cursors = {.load_ahead = static_cast<int32_t>(dice.below(4)),
                      .publish_behind = static_cast<int32_t>(dice.below(4))};
    return choice;
  }
};

}  // namespace tilewire

// Random calls of GEMM+ReduceScatter, for sequences in the simulator and for soaks.
#pragma once

#include <vector>

#include "ops/gemm_rs/call_fixture.h"
#include "ops/gemm_rs/model.h"
#include "testing/reduction_random_calls.h"
#include "testing/simulation_test_support.h"

namespace tilewire {

template <>
struct OpRandomCalls<gemm_rs::Op> {
  static void add(OpSimulation& simulation, Dice& dice) {
    const int32_t ranks = simulation.ranks();
    const gemm_rs::Problem problem{.rows = random_rows(ranks, 9, dice),
                                   .n = dice.one_in(5) ? 0 : 1 + dice.below(20),
                                   .wire_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32}),
                                   .k = 8};
    auto shared = random_shared<gemm_rs::PlanChoice>(dice, 4, 10);
    if (dice.one_in(2)) shared.own_behind = dice.below(6);
    std::vector<gemm_rs::PlanChoice> choices;
    for (int32_t r = 0; r < ranks; ++r) choices.push_back(random_own(shared, dice));
    simulation.add_call<gemm_rs::RankModel>(problem, choices);
  }

  static gemm_rs::TestCall call(const Layout& layout, Dice& dice) {
    return random_reduction_call<gemm_rs::PlanChoice>(layout, random_rows(ranks_of(layout), 60, dice), dice);
  }

 private:
  static std::vector<int64_t> random_rows(int32_t ranks, int64_t most, Dice& dice) {
    std::vector<int64_t> rows;
    for (int32_t r = 0; r < ranks; ++r) rows.push_back(dice.one_in(3) ? 0 : dice.below(most));
    return rows;
  }
};

}  // namespace tilewire

// Random calls of GEMM+AllReduce, for sequences in the simulator and for soaks.
#pragma once

#include <vector>

#include "ops/gemm_ar/call_fixture.h"
#include "ops/gemm_ar/model.h"
#include "testing/reduction_random_calls.h"
#include "testing/simulation_test_support.h"

namespace tilewire {

template <>
struct OpRandomCalls<gemm_ar::Op> {
  static void add(OpSimulation& simulation, Dice& dice) {
    const gemm_ar::Problem problem{.m = dice.one_in(5) ? 0 : 1 + dice.below(16),
                                   .n = dice.one_in(5) ? 0 : 1 + dice.below(20),
                                   .wire_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32}),
                                   .out_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp32}),
                                   .k = 8};
    const gemm_ar::PlanChoice shared = form(random_shared<gemm_ar::PlanChoice>(dice, 2, 6), dice);
    std::vector<gemm_ar::PlanChoice> choices;
    for (int32_t r = 0; r < simulation.ranks(); ++r) choices.push_back(own(random_own(shared, dice), dice));
    simulation.add_call<gemm_ar::RankModel>(problem, choices);
  }

  static gemm_ar::TestCall call(const Layout& layout, Dice& dice) {
    gemm_ar::TestCall call =
        random_reduction_call<gemm_ar::PlanChoice>(layout, {dice.one_in(8) ? 0 : dice.below(120)}, dice);
    if (!call.plan_json.empty()) {
      call.plan_json = to_json(own(form(gemm_ar::PlanChoice::from_json(call.plan_json), dice), dice));
    }
    return call;
  }

 private:
  static gemm_ar::PlanChoice form(gemm_ar::PlanChoice choice, Dice& dice) {
    choice.is_one_shot = dice.one_in(2);
    if (choice.is_one_shot) choice.window = 0;
    return choice;
  }
  static gemm_ar::PlanChoice own(gemm_ar::PlanChoice choice, Dice& dice) {
    choice.gather_behind = static_cast<int32_t>(dice.below(4));
    return choice;
  }
};

}  // namespace tilewire

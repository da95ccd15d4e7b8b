// Random calls of AllGather+GEMM, for sequences in the simulator and for soaks.
#pragma once

#include <utility>
#include <vector>

#include "ops/ag_gemm/call_fixture.h"
#include "ops/ag_gemm/model.h"
#include "testing/simulation_test_support.h"

namespace tilewire {

template <>
struct OpRandomCalls<ag_gemm::Op> {
  static void add(OpSimulation& simulation, Dice& dice) {
    ag_gemm::Problem problem{
        .rows = {}, .k = dice.one_in(4) ? 0 : 1 + dice.below(30), .dtype = DataType::bf16, .cols = {}};
    const int64_t weights = 1 + dice.below(2);
    for (int64_t w = 0; w < weights; ++w) problem.cols.push_back(dice.one_in(4) ? 0 : dice.below(24));
    const int64_t chunk_rows = 1 + dice.below(8);
    std::vector<bool> own_in_user, own_in_place;
    const auto forward_workers = static_cast<int32_t>(1 + dice.below(3));
    std::vector<ag_gemm::PlanChoice> choices;
    for (int32_t r = 0; r < simulation.ranks(); ++r) {
      problem.rows.push_back(dice.one_in(3) ? 0 : dice.below(20));
      own_in_user.push_back(dice.one_in(3));
      own_in_place.push_back(!own_in_user.back() && dice.one_in(2));
      choices.push_back(choice(dice, chunk_rows, 9, 8));
    }
    simulation.add_call<ag_gemm::RankModel>(problem, choices, {}, [&](ag_gemm::Schedule& s) {
      s.own_in_user = own_in_user[static_cast<size_t>(s.me().value)];
      s.own_in_place = own_in_place[static_cast<size_t>(s.me().value)];
      s.forward_workers = forward_workers;
    });
  }

  static ag_gemm::TestCall call(const Layout& layout, Dice& dice) {
    ag_gemm::TestCall call;
    for (int32_t r = 0; r < ranks_of(layout); ++r) call.rows.push_back(dice.one_in(3) ? 0 : dice.below(90));
    call.k = dice.one_in(8) ? 0 : dice.below(80);
    const int64_t weights = dice.one_in(4) ? 1 + dice.below(3) : 1;
    for (int64_t w = 0; w < weights; ++w) call.cols.push_back(dice.one_in(8) ? 0 : dice.below(48));
    call.dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.out_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.wants_gathered = dice.one_in(4);
    call.has_bias = dice.one_in(3);
    call.is_n_by_k = dice.one_in(2);
    call.salt = static_cast<uint64_t>(dice.below(1000));
    if (dice.one_in(3)) call.plan_json = to_json(choice(dice, 2 + dice.below(30), 40, 8 + dice.below(40)));
    return call;
  }

 private:
  static ag_gemm::PlanChoice choice(Dice& dice, int64_t chunk_rows, int64_t most_tile_rows, int64_t tile_cols) {
    return {.chunk_rows = chunk_rows,
            .is_fused = !dice.one_in(4),
            .tile_rows = static_cast<int32_t>(1 + dice.below(most_tile_rows)),
            .tile_cols = static_cast<int32_t>(tile_cols),
            .raster_rows = static_cast<int32_t>(1 + dice.below(3)),
            .workers = static_cast<int32_t>(1 + dice.below(3)),
            .push_workers = static_cast<int32_t>(1 + dice.below(3)),
            .cursors = {.load_ahead = static_cast<int32_t>(dice.below(4)),
                        .publish_behind = static_cast<int32_t>(dice.below(4))}};
  }
};

}  // namespace tilewire

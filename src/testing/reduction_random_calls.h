// Random calls and plans of ops that sum all ranks' products, for their OpRandomCalls.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "testing/reduction_fixture.h"
#include "testing/simulation_test_support.h"

namespace tilewire {

// Of chunks somewhat larger than that.
template <class Choice>
Choice random_shared(Dice& dice, int64_t chunk_rows, int64_t chunk_cols) {
  Choice choice{.cursors = {}};
  choice.chunk_rows = chunk_rows + dice.below(6);
  choice.chunk_cols = chunk_cols + dice.below(8);
  choice.window = dice.one_in(2) ? 0 : 1 + dice.below(4);
  return choice;
}

// What a rank may have its own way.
template <class Choice>
Choice random_own(Choice choice, Dice& dice) {
  choice.is_fused = choice.window > 0 || !dice.one_in(3);
  choice.workers = static_cast<int32_t>(1 + dice.below(3));
  choice.reduce_workers = static_cast<int32_t>(1 + dice.below(3));
  choice.cursors = {.load_ahead = static_cast<int32_t>(dice.below(4)),
                    .publish_behind = static_cast<int32_t>(dice.below(4))};
  return choice;
}

// With a plan of random_shared() and random_own() now and then.
template <class Choice>
ReductionTestCall random_reduction_call(const Layout& layout, std::vector<int64_t> rows, Dice& dice) {
  ReductionTestCall call{.layout = layout, .rows = std::move(rows), .k = {}, .n = dice.one_in(8) ? 0 : dice.below(48)};
  for (int32_t r = 0; r < ranks_of(layout); ++r) call.k.push_back(dice.one_in(5) ? 0 : dice.below(40));
  call.dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
  call.out_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
  if (dice.one_in(2)) call.wire_dtype = dice.pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
  call.has_bias = dice.one_in(3);
  call.has_residual = dice.one_in(3);
  call.is_n_by_k = dice.one_in(2);
  call.is_a_transposed = dice.one_in(4);
  call.salt = static_cast<uint64_t>(dice.below(1000));
  if (dice.one_in(3)) {
    call.plan_json = to_json(random_own(random_shared<Choice>(dice, 20 + dice.below(20), 16), dice));
  }
  return call;
}

}  // namespace tilewire

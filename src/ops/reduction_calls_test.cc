// Calls on thread ranks of the ops that sum all ranks' products: every element, every shape class, every layout, the same
// bits. Built for each of these ops, which has ReductionOpTraits beside its fixture. What is an op's own is in its
// <op>_test.cc, roundings are in reduction_rounding_test.cc, faults in op_fault_test.cc.
#include <gtest/gtest.h>

#include <op_random_calls.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "testing/sanitized.h"
#include "testing/simulation_test_support.h"

#ifndef TILEWIRE_OP
#define TILEWIRE_OP gemm_rs::Op
#endif

namespace tilewire {
namespace {

using Op = TILEWIRE_OP;
using Traits = ReductionOpTraits<Op>;
using Checker = OpTestTraits<Op>::Checker;
using TestCall = ReductionTestCall;

void run_and_check(const Options& options, const std::vector<TestCall>& calls) {
  run_and_check_calls<Op, Checker>(calls.front().layout, options, calls);
}

TestCall odd(const Layout& layout, const std::vector<int64_t>& rows, int64_t n = 19) {
  return odd_call(layout, Traits::rows(rows), n);
}

// By the planner's plan, and by those of small chunks.
std::vector<TestCall> by_every_plan(const TestCall& call) {
  std::vector<TestCall> calls = {call};
  for (const auto& choice : Traits::plans(8, 16)) calls.push_back(with_plan(call, choice));
  return calls;
}

TEST(ReductionCalls, SizesOfZeroAndOneAreLegal) {
  std::vector<TestCall> calls;
  for (const std::vector<int64_t>& k : {std::vector<int64_t>{0, 0, 0, 0}, {1, 1, 1, 1}, {0, 5, 0, 1}}) {
    for (const int64_t n : {0, 1, 8}) {
      for (const std::vector<int64_t>& rows : {std::vector<int64_t>{3, 3, 3, 3}, {0, 1, 0, 0}, {0, 0, 0, 0}}) {
        const TestCall call{.layout = {2, 2}, .rows = Traits::rows(rows), .k = k, .n = n, .has_bias = rows[0] > 0};
        for (const TestCall& of_plan : by_every_plan(call)) calls.push_back(of_plan);
      }
    }
  }
  run_and_check(test_options(), calls);
}

TEST(ReductionCalls, EveryWorldSizeAndLayoutGivesEveryElement) {
  const std::vector<Layout> layouts = {{1}, {2}, {1, 1}, {3, 1}, {1, 3}, {2, 3}, {1, 1, 2}, {4}, {1, 2, 1, 2}};
  for (const Layout& layout : part_if_sanitized(layouts)) {
    std::vector<int64_t> rows;
    for (int64_t r = 0; r < ranks_of(layout); ++r) rows.push_back((r * 37 + 11) % 50);
    SCOPED_TRACE(testing::PrintToString(layout));
    std::vector<TestCall> calls = by_every_plan(odd(layout, rows));
    calls.push_back(odd(layout, std::vector<int64_t>(rows.size(), 16), 16));
    run_and_check(test_options(), calls);
  }
}

TEST(ReductionCalls, EveryDtypeOfInputWireAndResultGivesEveryElementInEveryForm) {
  std::vector<TestCall> calls;
  constexpr DataType kAll[] = {DataType::bf16, DataType::fp16, DataType::fp32};
  for (const std::string& plan : Traits::forms()) {
    for (const DataType dtype : kAll) {
      for (const DataType wire : kAll) {
        for (const DataType out : kAll) {
          TestCall c = odd({2, 2}, {9, 14, 2, 20}, 13);
          c.dtype = dtype;
          c.out_dtype = out;
          c.wire_dtype = wire;
          c.is_n_by_k = out == DataType::fp16;
          c.has_bias = out != DataType::bf16;
          c.has_residual = out != DataType::fp16;
          c.plan_json = plan;
          calls.push_back(c);
        }
      }
      calls.push_back(odd({2, 2}, {9, 14, 2, 20}));
      calls.back().dtype = dtype;  // and its own wire
    }
  }
  run_and_check(test_options(), calls);
}

TEST(ReductionCalls, InputsInAnyOrderInMemoryGiveEveryElement) {
  std::vector<TestCall> calls;
  for (const bool is_a_transposed : {false, true}) {
    for (const bool is_n_by_k : {false, true}) {
      calls.push_back(odd({2, 1}, {30, 7, 12}, 40));
      calls.back().is_a_transposed = is_a_transposed;
      calls.back().is_n_by_k = is_n_by_k;
    }
  }
  run_and_check(test_options(), calls);
}

TEST(ReductionCalls, UnorderedNetworkWithCountedArrivalsGivesEveryElement) {
  for (const char* arrivals : {"proxy", "relay"}) {
    Options options = test_options();
    options.emulated_personality = "srd";
    options.emulated_latency_us = 50;
    options.test_delay_us = 100;
    options.ring_entries = 16;
    options.arrivals = arrivals;
    std::vector<TestCall> calls;
    const auto plans = Traits::plans(8, 16);
    for (uint64_t i = 0; i < 10; ++i) {
      calls.push_back(with_plan(with_salt(odd({2, 2}, {40, 1, 17, 33}, 21), i), plans[i % plans.size()]));
    }
    run_and_check(options, calls);
  }
}

// Inputs change in each call, so stale data of an earlier call would show.
TEST(ReductionCalls, RandomSequencesOfShapesOnOneArenaUnderRandomDelaysGiveEveryElement) {
  std::mt19937_64 random(20261130);
  for (const Layout& layout : {Layout{2, 2}, Layout{2, 1}, Layout{1, 1, 2}, Layout{2, 3}}) {
    Options options = test_options();
    options.test_delay_us = 300;
    options.emulated_latency_us = 20;
    options.emulated_personality = random() % 2 == 0 ? "rc" : "srd";
    options.emulated_seed = static_cast<int64_t>(random() % 1000);
    Dice dice(random());
    std::vector<TestCall> calls;
    for (int i = 0; i < 10; ++i) calls.push_back(OpRandomCalls<Op>::call(layout, dice));
    SCOPED_TRACE(testing::PrintToString(layout) + " " + options.emulated_personality);
    run_and_check(options, calls);
  }
}

TEST(ReductionCalls, EpochsGoPastThirtyTwoBitsAndPastTheNarrowFieldOfTheImmediate) {
  std::vector<TestCall> calls;
  const auto forms = Traits::forms();
  for (uint64_t i = 0; i < 8; ++i) {
    calls.push_back(with_salt(odd({2, 2}, {20, 3, 9, 11}), i));
    calls.back().plan_json = forms[i % forms.size()];
  }
  for (const char* personality : {"rc", "srd"}) {
    for (const int64_t first : {(int64_t{1} << 32) - 3, (int64_t{1} << 11) - 3, (int64_t{1} << 10) - 3}) {
      Options options = test_options();
      options.emulated_personality = personality;
      options.first_epoch = first;
      run_and_check(options, calls);
    }
  }
}

TEST(ReductionCalls, TheArenaGrowsWhenAShapeNeedsMore) {
  Options options = test_options();
  options.arena_initial_bytes = 4096;
  run_and_check(options,
                {odd({2, 2}, {2, 2, 2, 2}), odd({2, 2}, {300, 300, 300, 300}, 64), odd({2, 2}, {900, 1, 1, 900}, 64)});
}

// Forms, windows, chunks, workers, cursors; products first or not.
std::vector<std::string> many_plans() {
  std::vector<std::string> plans = {"", ""};
  for (const auto& [rows, cols] : {std::pair{70, 81}, std::pair{33, 32}, std::pair{16, 40}}) {
    for (auto choice : Traits::plans(rows, cols)) {
      for (const bool is_fused : {true, false}) {
        if (!is_fused && choice.window > 0) continue;
        choice.is_fused = is_fused;
        choice.workers = is_fused ? 2 : 1;
        choice.reduce_workers = is_fused ? 1 : 2;
        choice.cursors = {.load_ahead = is_fused ? 1 : 0, .publish_behind = 1};
        plans.push_back(to_json(choice));
      }
    }
  }
  return plans;
}

TEST(ReductionCalls, BitsOfInexactSumsDependNeitherOnThePlanNorOnTiming) {
  Options options = test_options();
  options.test_delay_us = 50;
  std::vector<DataType> dtypes = {DataType::bf16, DataType::fp16, DataType::fp32};
  if (kIsSanitized) dtypes.resize(1);
  expect_same_bits<Op>(options, dtypes, many_plans(), inexact_result<Op>);
}

TEST(ReductionCalls, ThirtyRepeatsUnderDelaysAreBitwiseEqual) {
  Options options = test_options();
  options.test_delay_us = 200;
  options.workers = 2;
  for (const std::string& plan : Traits::forms()) {
    expect_same_bits<Op>(options, {DataType::bf16}, std::vector<std::string>(kIsSanitized ? 6 : 30, plan),
                         inexact_result<Op>);
  }
}

}  // namespace
}  // namespace tilewire

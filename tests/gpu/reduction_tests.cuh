// What is tested alike of ops that sum products over ranks: sizes, and the ways in which a call ends early.
#pragma once

#include "fused_calls.cuh"
#include "gpu_program.cuh"
#include "reduction_case.cuh"
#include "schedule/reduction_flags.h"

#include <tilewire/error.h>

#include <chrono>
#include <string>
#include <vector>

namespace tilewire {

inline std::vector<ReductionSize> reduction_sizes() {
  const std::vector<int64_t> four{300, 0, 517, 130}, even{256, 256, 256, 256};
  constexpr DataType kFp16 = DataType::fp16, kFp32 = DataType::fp32;
  return {
      {.name = "one rank", .rows = {400}, .k = {200}, .n = 320, .ctas = 60},
      {.name = "two ranks", .rows = {384, 256}, .k = {512}, .n = 512, .ctas = 48},
      {.name = "four ranks", .rows = even, .k = {256}, .n = 512},
      {.name = "2x2 nodes", .rows = even, .k = {256}, .n = 512, .widths = {2, 2}},
      {.name = "four uneven ranks, ragged", .rows = four, .k = {136}, .n = 333, .has_bias = true},
      {.name = "2x2 nodes, ragged", .rows = four, .k = {136}, .n = 333, .has_residual = true, .widths = {2, 2}},
      {.name = "depths of their own", .rows = four, .k = {136, 0, 75, 264}, .n = 333, .out_padding = 3},
      {.name = "2x2 nodes, depths, [K, N]",
       .rows = four,
       .k = {136, 0, 75, 264},
       .n = 333,
       .is_b_n_major = true,
       .has_bias = true,
       .has_residual = true,
       .widths = {2, 2}},
      {.name = "no depth at all", .rows = {100, 40}, .k = {0}, .n = 72, .has_bias = true},
      {.name = "fewer rows than ranks", .rows = {1, 1, 1, 0}, .k = {136}, .n = 200, .widths = {2, 2}},
      {.name = "one row, eight columns", .rows = {1, 0}, .k = {64}, .n = 8},
      {.name = "few rows", .rows = {16, 16, 16, 16}, .k = {512}, .n = 1000, .widths = {2, 2}},
      {.name = "fp16", .rows = four, .k = {136}, .n = 333, .type = kFp16, .wire = kFp16, .out = kFp16},
      {.name = "2x2 nodes, fp16 to fp32",
       .rows = four,
       .k = {136},
       .n = 333,
       .type = kFp16,
       .wire = kFp16,
       .out = kFp32,
       .widths = {2, 2}},
      {.name = "the other 16 bits on the wire, 2x2 nodes",
       .rows = four,
       .k = {136},
       .n = 333,
       .wire = kFp16,
       .out = kFp16,
       .widths = {2, 2}},
      {.name = "fp32 wire", .rows = four, .k = {136}, .n = 333, .wire = kFp32, .out = kFp32},
      {.name = "2x2 nodes, fp32 wire, odd columns",
       .rows = four,
       .k = {136},
       .n = 261,
       .type = kFp16,
       .wire = kFp32,
       .out = kFp16,
       .is_b_n_major = true,
       .has_bias = true,
       .widths = {2, 2}},
      {.name = "cooperative 128x256",
       .rows = {513, 300, 200, 64},
       .k = {328},
       .n = 520,
       .tile_rows = 256,
       .tile_cols = 256},
      {.name = "cooperative, 2x2 nodes, fp32 wire",
       .rows = {513, 300, 200, 64},
       .k = {328},
       .n = 520,
       .wire = kFp32,
       .out = kFp32,
       .tile_rows = 256,
       .tile_cols = 256,
       .widths = {2, 2}},
      {.name = "ping-pong 128x128",
       .rows = {513, 300, 200, 64},
       .k = {328},
       .n = 520,
       .tile_rows = 128,
       .tile_cols = 256},
      {.name = "several tiles a chunk",
       .rows = {513, 300},
       .k = {328},
       .n = 1100,
       .chunk_rows = 200,
       .chunk_cols = 600,
       .tile_rows = 128,
       .tile_cols = 256},
      {.name = "small chunks, large tiles",
       .rows = {100, 130, 64, 31},
       .k = {72},
       .n = 300,
       .chunk_rows = 24,
       .chunk_cols = 64,
       .tile_rows = 256,
       .tile_cols = 256,
       .widths = {2, 2}},
      {.name = "a window of one, 2x2 nodes",
       .rows = four,
       .k = {136},
       .n = 333,
       .chunk_rows = 64,
       .chunk_cols = 128,
       .window = 1,
       .widths = {2, 2}},
      {.name = "a window of three",
       .rows = four,
       .k = {136},
       .n = 333,
       .chunk_rows = 32,
       .chunk_cols = 64,
       .window = 3,
       .reduce_workers = 5},
      {.name = "a window of two, 1+3 nodes, relay",
       .rows = four,
       .k = {136},
       .n = 333,
       .chunk_rows = 64,
       .chunk_cols = 64,
       .window = 2,
       .widths = {1, 3},
       .personality = Personality::srd},
      {.name = "one team", .rows = four, .k = {136}, .n = 333, .reduce_workers = 1, .widths = {2, 2}},
      {.name = "a team a warp", .rows = four, .k = {136}, .n = 333, .reduce_workers = 256, .widths = {2, 2}},
      {.name = "unfused", .rows = {300, 310}, .k = {136}, .n = 128, .is_fused = false},
      {.name = "unfused, 2x2 nodes", .rows = four, .k = {136}, .n = 333, .is_fused = false, .widths = {2, 2}},
      {.name = "2x2 nodes, relay",
       .rows = {384, 256, 300, 129},
       .k = {512},
       .n = 512,
       .widths = {2, 2},
       .personality = Personality::srd},
      {.name = "2x2 nodes, no order",
       .rows = four,
       .k = {136},
       .n = 333,
       .widths = {2, 2},
       .personality = Personality::relaxed},
      {.name = "3+1 nodes", .rows = four, .k = {136}, .n = 333, .has_bias = true, .widths = {3, 1}},
      {.name = "1+1+2 nodes", .rows = four, .k = {136}, .n = 333, .widths = {1, 1, 2}},
      {.name = "2+3 nodes, fp16",
       .rows = {130, 60, 0, 1, 300},
       .k = {200},
       .n = 128,
       .type = kFp16,
       .wire = kFp16,
       .out = kFp16,
       .ctas = 20,
       .widths = {2, 3}},
      {.name = "no rows at all, 2x2 nodes", .rows = {0, 0, 0, 0}, .k = {64}, .n = 64, .widths = {2, 2}},
      {.name = "no columns at all", .rows = {100, 20}, .k = {64}, .n = 0},
  };
}

const ReductionSize kRowSize{.name = "", .rows = {130, 70, 64, 1}, .k = {72}, .n = 96};
inline ReductionSize on_nodes(ReductionSize size, const std::vector<int32_t>& widths, Personality personality) {
  size.widths = widths;
  size.personality = personality;
  return size;
}

// Elements that are not NaN in rows [begin, end) of the result, and elements elsewhere that are neither right nor NaN.
template <class Case>
void check_unfinished(const Case& data, int32_t r, int64_t begin, int64_t end) {
  const std::vector<uint32_t> seen = data.out(r), right = data.expected(r);
  const int64_t rows = data.own_rows(r), n = rows > 0 ? static_cast<int64_t>(right.size()) / rows : 0;
  int64_t finished = 0, neither = 0;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t c = 0; c < n; ++c) {
      const uint32_t got = seen[static_cast<size_t>(row * data.out_pitch() + c)];
      if (row >= begin && row < end) {
        finished += !data.is_nan(got);
      } else {
        neither += !data.is_nan(got) && got != right[static_cast<size_t>(row * n + c)];
      }
    }
  }
  expect(finished == 0, "results that lack a sum are NaN");
  expect(neither == 0, "all other results are right or NaN");
}

const ReductionSize kFaultSize{
    .name = "", .rows = {300, 320}, .k = {136}, .n = 256, .chunk_rows = 32, .chunk_cols = 64, .ctas = 24};

// Rank 0's tiles end behind the first one.
template <class Case>
void test_withheld_chunk() {
  Case data(kFaultSize, 5, 20'000'000);
  data.prepare(5, kUnwritten);
  typename Case::Parameters withholding = data.parameters(0);
  withholding.reduction.dealt.units = 1;
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, withholding);
  data.launch(1, data.parameters(1));
  data.wait();
  const double ms = milliseconds(begin);
  expect(ms >= 20 && ms < 1000, "withheld chunks end the call at its deadline");
  int records = 0;
  bool is_chunk_of_rank_0 = true;
  const FlagLayout& flags = data.cluster().layout().flags;
  for (int32_t r = 0; r < 2; ++r) {
    const FaultRecord& f = data.cluster().fault(r);
    if (f.state != FaultRecord::kComplete) continue;
    ++records;
    const bool is_partial_sum = f.word >= flags.chunk(kPartialArrived, Rank{0}, Chunk{0}) &&
                                f.word < flags.chunk(kPartialArrived, Rank{1}, Chunk{0});
    is_chunk_of_rank_0 = is_chunk_of_rank_0 && f.kind == KernelFaultKind::deadline && f.expected == 5 && f.seen == 4 &&
                         (is_partial_sum || Case::Op::is_result(flags, f.word));
  }
  expect(records >= 1, "somebody leaves a record");
  expect(is_chunk_of_rank_0, "the records name a chunk that was withheld");
  check_unfinished(data, 0, 0, 0);
  check_unfinished(data, 1, 0, 0);
}

template <class Case>
void test_rank_that_never_comes() {
  Case data(kFaultSize, 5, 20'000'000);
  data.prepare(5, kUnwritten);
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, data.parameters(0));
  data.wait();
  const FaultRecord& f = data.cluster().fault(0);
  const double ms = milliseconds(begin);
  expect(ms >= 20 && ms < 1000, "a rank that never comes ends the call at its deadline");
  expect(f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::deadline, "and leaves a record");
  check_unfinished(data, 0, 0, 300);
}

// Rank 3 never comes: its node's sums are sent by nobody, and neither are those of its rail partner's node finished.
template <class Case>
void test_missing_rank_of_another_node() {
  Case data({.name = "", .rows = {200, 100, 150, 300}, .k = {136}, .n = 256, .widths = {2, 2}}, 5, 20'000'000);
  data.prepare(5, kUnwritten);
  for (int32_t r = 0; r < 3; ++r) data.launch(r, data.parameters(r));
  data.wait();
  for (int32_t r = 0; r < 3; ++r) check_unfinished(data, r, 0, data.own_rows(r));
  const FaultRecord& f = data.cluster().fault(2);
  expect(f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::deadline,
         "the rank beside the missing one leaves a record");
}

template <class Case, class Change>
void expect_refusal(const char* name, const Change& change) {
  const Case data(kFaultSize, 5, kPatienceNs);
  typename Case::Operands operands = data.operands(0);
  change(operands);
  try {
    (void)data.kernel(0).parameters(77, operands);
    expect(false, name);
  } catch (const Error& e) {
    expect(e.kind() == ErrorKind::invalid_argument && std::string(e.what()).find(name) != std::string::npos, e.what());
  }
}

template <class Case>
void test_refusals() {
  expect_refusal<Case>("a does not fit", [](auto& o) { o.a.rows = 301; });
  expect_refusal<Case>("a is misaligned", [](auto& o) { o.a.data = reinterpret_cast<void*>(4098); });
  expect_refusal<Case>("b does not fit", [](auto& o) { o.b.cols = 137; });
  expect_refusal<Case>("out", [](auto& o) { o.out.dtype = DataType::fp16; });
  expect_refusal<Case>("residual does not fit", [](auto& o) { o.residual = MatrixView{nullptr, 3, 256, 256, 1}; });
}

// All of them, in a program that is told which part.
template <class Case>
void test_faults_of() {
  test_calls_in_a_row_of<Case>(kRowSize);
  test_calls_in_a_row_of<Case>(on_nodes(kRowSize, {2, 2}, Personality::rc));
  test_calls_in_a_row_of<Case>(on_nodes(kRowSize, {1, 3}, Personality::srd));
  test_graph_replay_of<Case>(kRowSize);
  test_graph_replay_of<Case>(on_nodes(kRowSize, {2, 2}, Personality::srd));
  test_withheld_chunk<Case>();
  test_rank_that_never_comes<Case>();
  const auto has_no_result = [](const Case& data) { check_unfinished(data, 0, 0, 300); };
  test_ranks_in_different_calls_of<Case>(kFaultSize, has_no_result);
  test_abort_by_the_host_of<Case>(kFaultSize, has_no_result);
  test_missing_rank_of_another_node<Case>();
  test_refusals<Case>();
}

}  // namespace tilewire

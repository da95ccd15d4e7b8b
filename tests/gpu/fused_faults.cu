#include "fused_faults.cuh"

#include "fused_calls.cuh"
#include "fused_case.cuh"
#include "gpu_program.cuh"

#include "device/ptx/control.cuh"

#include <tilewire/error.h>

#include <chrono>
#include <string>

namespace tilewire {
namespace {

// Elements of rows [begin, end) that are not NaN, and elements elsewhere that are neither right nor NaN.
void check_unfinished(const FusedCase& data, int32_t r, int64_t begin, int64_t end) {
  const std::vector<uint32_t> seen = data.out(r, 0), right = data.expected(r, 0);
  const int64_t pitch = data.out_pitch(0), n = static_cast<int64_t>(right.size()) / data.total_rows();
  int64_t finished = 0, neither = 0;
  for (int64_t row = 0; row < data.total_rows(); ++row) {
    for (int64_t c = 0; c < n; ++c) {
      const uint32_t got = seen[static_cast<size_t>(row * pitch + c)];
      if (row >= begin && row < end) {
        finished += got != FusedCase::kPoison;
      } else {
        neither += got != FusedCase::kPoison && got != right[static_cast<size_t>(row * n + c)];
      }
    }
  }
  expect(finished == 0, "output whose rows never came is NaN");
  expect(neither == 0, "all other output is right or NaN");
}

const FusedSize kFaultSize{.name = "", .rows = {300, 320}, .k = 136, .cols = {256}, .wants_gathered = true};

// Of a call that was given up: what a caller might take for rows of other ranks.
void check_gathered_is_nan(const FusedCase& data, int32_t r) {
  const std::vector<uint32_t> seen = data.gathered_result(r);
  int64_t left = 0;
  for (int64_t i = 0; i < data.total_rows() * kFaultSize.k; ++i) {
    left += seen[static_cast<size_t>(i)] != FusedCase::kPoison;
  }
  expect(left == 0, "gathered rows of a call that was given up are NaN");
}

// Rank 0's pushers are told that there is one more of them, so that chunk 2 is nobody's.
void test_withheld_chunk() {
  FusedCase data(kFaultSize, 5, 20'000'000);
  data.prepare(5, kUnwritten);
  ag_gemm::FusedParameters withholding = data.parameters(0);
  withholding.schedule.push_workers = 3;
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, withholding);
  data.launch(1, data.parameters(1));
  data.wait();
  const double ms = milliseconds(begin);
  const uint32_t word = data.cluster().layout().flags.chunk(ag_gemm::kShardArrived, Rank{0}, Chunk{2});
  int records = 0;
  bool is_right_word = true;
  for (int32_t r = 0; r < 2; ++r) {
    const FaultRecord& f = data.cluster().fault(r);
    if (f.state != FaultRecord::kComplete) continue;
    ++records;
    is_right_word = is_right_word && f.kind == KernelFaultKind::deadline && f.word == word && f.expected == 5 &&
                    f.seen == 4 && f.rank == r && f.epoch == 5;
  }
  expect(ms >= 20 && ms < 1000, "a withheld chunk ends the call at its deadline");
  expect(records >= 1, "somebody leaves a record");
  expect(is_right_word, "the records name the chunk that was withheld");
  check_unfinished(data, 0, 0, 0);  // which reads its own rows where they are
  check_unfinished(data, 1, 128, 192);
  for (int32_t r = 0; r < 2; ++r) check_gathered_is_nan(data, r);
  std::printf("withheld chunk: %.1f ms, %d records\n", ms, records);
}

void test_rank_that_never_comes() {
  FusedCase data(kFaultSize, 5, 20'000'000);
  data.prepare(5, kUnwritten);
  const auto begin = std::chrono::steady_clock::now();
  data.launch(0, data.parameters(0));
  data.wait();
  const FaultRecord& f = data.cluster().fault(0);
  const double ms = milliseconds(begin);
  expect(ms >= 20 && ms < 1000, "a rank that never comes ends the call at its deadline");
  expect(f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::deadline, "and leaves a record");
  check_unfinished(data, 0, 512, 620);  // tiles with rows of rank 1 alone
  check_gathered_is_nan(data, 0);
}

// The second call of rank 0 begins while the first one waits for rank 1.
void test_two_calls_at_once() {
  FusedCase data(kFaultSize, 5, kPatienceNs);
  data.prepare(5, kUnwritten);
  cudaStream_t other = nullptr;
  data.cluster().use(0);
  check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "making a stream");
  const auto begin = std::chrono::steady_clock::now();
  ag_gemm::FusedParameters first = data.parameters(0), second = first;
  data.launch(0, first);
  data.kernel(0).launch(second, other);
  data.wait();
  check_cuda(cudaStreamSynchronize(other), "running two calls");
  expect(milliseconds(begin) < 1000, "two calls of a rank at once need no deadline to find out");
  const FaultRecord& f = data.cluster().fault(0);
  expect(f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::busy, "and the record says so");
  cudaStreamDestroy(other);
}

// Rank 3 never comes: the entry rank of its node waits for it, too, and what it would forward is published to nobody.
void test_missing_rank_of_another_node(int32_t push_ctas) {
  FusedCase data(
      {.name = "", .rows = {200, 100, 150, 300}, .k = 136, .cols = {256}, .push_ctas = push_ctas, .widths = {2, 2}}, 5,
      20'000'000);
  data.prepare(5, kUnwritten);
  for (int32_t r = 0; r < 3; ++r) data.launch(r, data.parameters(r));
  data.wait();
  for (int32_t r = 0; r < 3; ++r) check_unfinished(data, r, 512, 750);
  const auto has_record = [&](int32_t r) {
    const FaultRecord& f = data.cluster().fault(r);
    return f.state == FaultRecord::kComplete && f.kind == KernelFaultKind::deadline;
  };
  expect(has_record(0) || has_record(1), "a rank of the other node leaves a record");
  expect(has_record(2), "and the one beside the missing rank");
}

// A kernel of somebody else: nothing fits beside a CTA of it.
constexpr int kAllSharedBytes = 227 * 1024;

__global__ void hold_sm(uint64_t hold_ns) {
  const uint64_t end_ns = ptx::global_timer_ns() + hold_ns;
  while (ptx::global_timer_ns() < end_ns) __nanosleep(1000);
}

// The ranks ask for 112 of the GPU's 132 SMs. Beside 8 held ones all of them run. With 40 held some CTAs begin when others
// have finished. With 104 held those of the first rank take all that is left and wait for rows of the other, which
// begins when SMs are given back.
void test_foreign_kernel(int sms, double hold_ms, bool has_to_wait) {
  FusedCase data({.name = "", .rows = {1500, 1500}, .k = 128, .cols = {1024}, .ctas = 56}, 1, kPatienceNs);
  check_cuda(cudaFuncSetAttribute(hold_sm, cudaFuncAttributeMaxDynamicSharedMemorySize, kAllSharedBytes),
             "asking for all shared memory");
  cudaStream_t other = nullptr;
  data.cluster().use(0);
  check_cuda(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), "making a stream");
  data.prepare(1);
  const auto begin = std::chrono::steady_clock::now();
  hold_sm<<<sms, 32, kAllSharedBytes, other>>>(static_cast<uint64_t>(hold_ms * 1e6));
  check_cuda(cudaGetLastError(), "holding SMs");
  for (int32_t r = 0; r < data.ranks(); ++r) data.launch(r, data.parameters(r));
  data.wait();
  const double ms = milliseconds(begin);
  check_cuda(cudaStreamSynchronize(other), "holding SMs");
  expect(data.count_wrong(1) == 0, "a call beside a foreign kernel is right");
  expect((ms >= hold_ms) == has_to_wait, "it waits for SMs where it has to, and only there");
  std::printf("beside %d held SMs: %.1f ms, 2 ranks with %d CTAs\n", sms, ms, data.kernel(0).ctas());
  cudaStreamDestroy(other);
}

template <class Change>
void expect_refusal(const char* name, const Change& change) {
  const FusedCase data(kFaultSize, 5, kPatienceNs);
  std::vector<DeviceMatrix> b{{reinterpret_cast<void*>(4096), 256, 136, 272, DataType::bf16}};
  std::vector<DeviceMatrix> out{{reinterpret_cast<void*>(4096), 620, 256, 512, DataType::bf16}};
  ag_gemm::FusedOperands operands{.a = {reinterpret_cast<void*>(4096), 300, 136, 272, DataType::bf16},
                                  .b = b,
                                  .out = out,
                                  .gathered = {reinterpret_cast<void*>(4096), 620, 136, 272, DataType::bf16},
                                  .bias = {}};
  change(operands, b[0], out[0]);
  try {
    (void)data.kernel(0).parameters(77, operands);
    expect(false, name);
  } catch (const Error& e) {
    expect(e.kind() == ErrorKind::invalid_argument && std::string(e.what()).find(name) != std::string::npos, e.what());
  }
}

void test_refusals() {
  expect_refusal("a does not fit", [](auto& o, auto&, auto&) { o.a.rows = 301; });
  expect_refusal("a is misaligned", [](auto& o, auto&, auto&) { o.a.data = reinterpret_cast<void*>(4098); });
  expect_refusal("a has a pitch", [](auto& o, auto&, auto&) { o.a.pitch_bytes = 274; });
  expect_refusal("b does not fit", [](auto&, auto& b, auto&) { b.cols = 137; });
  expect_refusal("out does not fit", [](auto&, auto&, auto& out) { out.type = DataType::fp16; });
  expect_refusal("one out for each", [](auto& o, auto&, auto&) { o.out = {}; });
  expect_refusal("gathered does not fit", [](auto& o, auto&, auto&) { o.gathered.rows = 619; });
  expect_refusal("gathered is misaligned",
                 [](auto& o, auto&, auto&) { o.gathered.data = reinterpret_cast<void*>(4098); });
}

}  // namespace

void test_fused_faults() {
  test_withheld_chunk();
  test_rank_that_never_comes();
  const auto has_own_rows_alone = [](const FusedCase& data) { check_unfinished(data, 0, 512, 620); };
  test_ranks_in_different_calls_of<FusedCase>(kFaultSize, has_own_rows_alone);
  test_abort_by_the_host_of<FusedCase>(kFaultSize, has_own_rows_alone);
  test_two_calls_at_once();
  test_missing_rank_of_another_node(2);
  test_missing_rank_of_another_node(0);
  if (gpus_of_clusters == 1) {
    test_foreign_kernel(8, 300, false);
    test_foreign_kernel(40, 300, false);
    test_foreign_kernel(104, 300, true);
  }
  test_refusals();
}

}  // namespace tilewire

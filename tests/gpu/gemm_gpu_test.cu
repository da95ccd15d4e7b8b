// Every form of the GEMM, both layouts of B and both element types over many shapes, against sums in fp64, on poisoned
// outputs with poison between and behind the rows.
#include "gemm_check.cuh"
#include "gpu_program.cuh"

#include <tilewire/error.h>

#include <cstdio>
#include <string>

namespace tilewire {
namespace {

struct Size {
  int64_t rows, cols, depth;
};

// One tile, edges at every side, single rows and columns, depths that end inside a stage or an instruction, many rounds
// of tiles a CTA, few tiles, tall and flat ones.
constexpr Size kSizes[] = {{128, 256, 64},   {256, 256, 128},  {1, 8, 8},        {1, 1, 1},        {129, 264, 72},
                           {127, 255, 63},   {257, 513, 65},   {64, 64, 512},    {300, 1000, 328}, {1000, 1992, 520},
                           {1025, 130, 200}, {33, 4104, 1096}, {2049, 40, 1096}, {1111, 777, 333}, {512, 512, 2048}};
// More tiles than CTAs, several times over.
constexpr Size kLargeSizes[] = {{4096, 4096, 256}, {3000, 5000, 136}, {8192, 2048, 64}};

struct Tally {
  int runs = 0;
  int wrong = 0;
  float worst = 0;
};

template <class Element>
void run_case(GemmCase<Element>& data, const FormNumbers& form, MatrixContent content, Tally& tally) {
  const Gemm gemm(data.problem(), &form);
  data.poison();
  gemm.launch(nullptr);
  check_cuda(cudaDeviceSynchronize(), std::string("running ") + form.name);
  const GemmFindings found = data.check(content);
  const uint32_t bits = static_cast<uint32_t>(found.worst >> 32);
  float error;
  memcpy(&error, &bits, sizeof(error));
  ++tally.runs;
  tally.worst = error > tally.worst ? error : tally.worst;
  if (error <= 1 && found.written_outside == 0) return;
  ++tally.wrong;
  const CheckedProduct& s = data.size;
  const int64_t place = static_cast<int64_t>(found.worst & 0xffffffffu);
  std::printf("WRONG %s %s B %s %lldx%lldx%lld %s: worst error %g tolerances at row %lld, col %lld; %llu outside\n",
              form.name, sizeof(Element) == 2 && std::is_same_v<Element, __nv_bfloat16> ? "bf16" : "fp16",
              s.is_b_n_major ? "[K, N]" : "[N, K]", static_cast<long long>(s.rows), static_cast<long long>(s.cols),
              static_cast<long long>(s.depth), content == MatrixContent::random ? "random" : "position-coded", error,
              static_cast<long long>(place / s.cols), static_cast<long long>(place % s.cols),
              static_cast<unsigned long long>(found.written_outside));
}

template <class Element>
void run_size(const Size& size, bool is_b_n_major, int64_t padding, Tally& tally) {
  GemmCase<Element> data(size.rows, size.cols, size.depth, is_b_n_major, padding);
  for (const MatrixContent content : {MatrixContent::position_coded, MatrixContent::random}) {
    data.fill(content, static_cast<uint32_t>(size.rows + 3 * size.cols));
    for (const FormNumbers& form : gemm_forms()) run_case(data, form, content, tally);
  }
}

template <class Element>
Tally run_sizes() {
  Tally tally;
  for (const bool is_b_n_major : {false, true}) {
    int64_t padding = 0;
    for (const Size& size : kSizes) run_size<Element>(size, is_b_n_major, padding = 8 - padding, tally);
    for (const Size& size : kLargeSizes) run_size<Element>(size, is_b_n_major, 0, tally);
  }
  return tally;
}

// The same launch gives the same bits, however the stages fall out in time.
int count_unequal_repeats() {
  GemmCase<__nv_bfloat16> data(2048, 3072, 1024, false, 0);
  data.fill(MatrixContent::random, 5);
  int unequal = 0;
  for (const FormNumbers& form : gemm_forms()) {
    const Gemm gemm(data.problem(), &form);
    std::vector<__nv_bfloat16> first;
    for (int i = 0; i < 5; ++i) {
      data.poison();
      gemm.launch(nullptr);
      const auto bits = data.d.to_host();
      if (i == 0) first = bits;
      if (memcmp(first.data(), bits.data(), bits.size() * sizeof(bits[0])) != 0) {
        std::printf("WRONG %s: run %d differs from the first\n", form.name, i);
        ++unequal;
      }
    }
  }
  return unequal;
}

int count_accepted(const char* what, const GemmProblem& problem) {
  try {
    const Gemm gemm(problem);
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::invalid_argument) return 0;
    std::printf("WRONG kind of error for %s: %s\n", what, e.what());
    return 1;
  }
  std::printf("WRONG: accepted %s\n", what);
  return 1;
}

int count_bad_arguments_accepted() {
  GemmCase<__nv_bfloat16> data(64, 64, 64, false, 8);
  GemmProblem p = data.problem();
  int accepted = 0;
  const auto with = [&](const char* what, auto change) {
    GemmProblem bad = p;
    change(bad);
    accepted += count_accepted(what, bad);
  };
  with("a misaligned a", [](GemmProblem& q) { q.a.data = static_cast<const char*>(q.a.data) + 2; });
  with("a pitch of b that is no multiple of 16 bytes", [](GemmProblem& q) { q.b.pitch_bytes += 8; });
  with("a pitch of d shorter than a row", [](GemmProblem& q) { q.d.pitch_bytes = 64; });
  with("a depth of 0", [](GemmProblem& q) { q.a.cols = q.b.cols = 0; });
  with("depths that differ", [](GemmProblem& q) { q.a.cols = 32; });
  with("types that differ", [](GemmProblem& q) { q.b.type = DataType::fp16; });
  with("fp32", [](GemmProblem& q) { q.a.type = q.b.type = q.d.type = DataType::fp32; });
  return accepted;
}

int run() {
  const Tally bf16 = run_sizes<__nv_bfloat16>(), fp16 = run_sizes<__half>();
  const int unequal = count_unequal_repeats(), accepted = count_bad_arguments_accepted();
  std::printf(
      "bf16: %d of %d wrong, worst error %.3f tolerances; fp16: %d of %d wrong, worst %.3f; %d unequal repeats; "
      "%d bad arguments accepted\n",
      bf16.wrong, bf16.runs, bf16.worst, fp16.wrong, fp16.runs, fp16.worst, unequal, accepted);
  return bf16.wrong + fp16.wrong + unequal + accepted == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tilewire

int main() { return tilewire::run_gpu_program(tilewire::run); }

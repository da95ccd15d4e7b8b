// A plain GEMM on one GPU: d = a * b, fp32 sums, one launch. It is the compute role without communication: what the
// fused operations are measured against. Host code.
#pragma once

#include "device/tile/plain_tiles.h"
#include "device/tile/tensor_map.cuh"
#include "device/tile/tile_form.h"

#include <cuda_runtime_api.h>

#include <span>

namespace tilewire {

struct GemmParameters;  // device/tile/gemm_kernel.cuh

struct GemmProblem {
  DeviceMatrix a;  // [rows, depth]
  DeviceMatrix b;  // [cols, depth], or [depth, cols] with is_b_n_major
  DeviceMatrix d;  // [rows, cols]; a row is written up to the next multiple of 8 columns, which its pitch has room for
  bool is_b_n_major = false;
};

// All forms there are.
std::span<const FormNumbers> gemm_forms();

// The form of which the model says that it needs the fewest clocks on `sms` SMs.
const FormNumbers& choose_gemm_form(int64_t rows, int64_t cols, int64_t depth, int32_t sms);

// Prepared for one problem on the current device; launch() does nothing but launch. The matrices stay the caller's.
class Gemm {
 public:
  // Throws Error(invalid_argument) for matrices that do not fit each other or the copy engine, Error(unavailable) for a
  // device that cannot run the kernel. Without a form it chooses one. `sms`: it takes no more of them; 0: all.
  explicit Gemm(const GemmProblem& problem, const FormNumbers* form = nullptr, int32_t sms = 0);

  // Any thread; the device of the constructor must be current. Throws Error(internal) if the launch fails.
  void launch(cudaStream_t stream) const;

  // What the kernel is given, for kernels that do the same work behind a gate.
  GemmParameters parameters() const;

  const FormNumbers& form() const { return *form_; }
  int32_t ctas() const { return ctas_; }

 private:
  void encode_maps(const GemmProblem& problem);
  void plan_tiles(const GemmProblem& problem, int64_t depth, int32_t sms);

  const FormNumbers* form_;
  const void* kernel_;
  CUtensorMap a_, b_, d_;
  PlainTiles tiles_;
  int32_t stages_per_tile_ = 0;
  int32_t ctas_ = 0;
};

}  // namespace tilewire

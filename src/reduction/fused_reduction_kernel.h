// The fused kernels of ops that sum products over ranks, for who launches them. Host code, without device code.
#pragma once

#include <cuda_runtime_api.h>
#include <tilewire/matrix.h>

#include <cstdint>
#include <optional>

#include "device/tile/form_entry.h"
#include "device/tile/fused_kernel.cuh"
#include "device/tile/tensor_map.cuh"
#include "planning/plan_parts.h"

namespace tilewire {

// The caller's matrices of one call, in device memory. `a` and `b` are of the problem's dtype, their pitches multiples of 16
// bytes and addresses 16-byte aligned; rows of `a` are read up to the next 16 bytes.
struct ReductionKernelOperands {
  DeviceMatrix a;              // [rows, K]
  DeviceMatrix b;              // [K, N], or [N, K] without is_b_n_major
  MatrixView out;              // [rows of the rank's result, N], columns contiguous
  const void* bias = nullptr;  // [N], null: none
  DataType bias_type = DataType::fp32;
  std::optional<MatrixView> residual;  // as `out`, any strides and dtype
};

// A call's shapes, as its operands are held against them.
struct ReductionKernelShape {
  const char* op = "";  // name of the call, for errors
  int64_t rows = 0;     // of a
  int64_t result_rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  DataType type = DataType::bf16;
  DataType result_type = DataType::bf16;
};

// The fused kernel of an op on one rank; built in the op's device_launch.cu, which includes fused_reduction_kernel.cuh. Op has
//   kName, Roles, kFamilyNames        for errors
//   Plan, Tables, Parameters          its types
//   entries()                         the compiled instances, in the order of Plan::kForms
//   source_slots(schedule)            as encode_slots() takes them
//   works(schedule, size)             what it does, written down (schedule/reduction_work_lists.h)
//   Own                               what else the kernel is given: place(DeviceTables&, schedule), once; give(Parameters&)
template <class Op>
struct ReductionKernelTypes {
  using Problem = typename Op::Plan::Problem;
  using Plan = typename Op::Plan;
  using Context = PlanContext;
  using Operands = ReductionKernelOperands;
  using Parameters = typename Op::Parameters;
  using Form = FormNumbers;
  struct State;
};
template <class Op>
using FusedReductionKernel = FusedKernelOf<ReductionKernelTypes<Op>>;

}  // namespace tilewire

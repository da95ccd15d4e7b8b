// GEMM+AllReduce: y = sum over ranks of a * b, all of it on every rank. Every rank brings all rows of a, and its own part of
// the depth.
//
// A call blocks until the result is there. It either throws on all ranks or on none, except that a call refused by the
// checks of some ranks throws on those at once and on the others as soon as they hear of it.
#pragma once

#include <tilewire/call.h>
#include <tilewire/communicator.h>
#include <tilewire/matrix.h>
#include <tilewire/op_handle.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tilewire {

// The result has the same bits on all ranks, those of GEMM+ReduceScatter (gemm_reduce_scatter.h says what is rounded):
// they depend on the layout of ranks and the wire's dtype, and not on plan or timing.
struct GemmAllReduceArguments {
  MatrixView a;  // [M, K_r], any strides; M is the same on all ranks, K_r is this rank's own: with 0 it adds zeros
  MatrixView b;  // [K_r, N] of a's dtype, any strides: a weight stored as [N, K_r] is a view with its strides swapped
  // Both are added once, and have the same values on all ranks: which rank's are taken is the plan's to say. Passed by
  // all ranks or by none.
  const void* bias = nullptr;  // N contiguous values of bias_dtype, or nullptr
  DataType bias_dtype = DataType::fp32;
  std::optional<MatrixView> residual;    // [M, N] of any dtype and strides, added behind the bias
  DataType out_dtype = DataType::bf16;   // the same on all ranks
  std::optional<DataType> wire_dtype{};  // a's unless given; the same on all ranks
  std::string plan_json;                 // empty: the planner chooses

  // Gives memory for the result, [M, N] of out_dtype with contiguous columns, before anything is sent. What it throws
  // refuses the call on all ranks; std::bad_alloc and std::length_error become Error(resource) with the bytes asked for.
  std::function<MatrixView(int64_t rows)> make_results;

  // Stands in for the arithmetic of a product of rows x cols x k, for tests and benchmarks of everything else.
  std::function<void(int64_t rows, int64_t cols, int64_t k)> compute_stand_in;
};

// Throws Error as all_gather_matmul() does, and leaves results NaN where that does.
TILEWIRE_API CallReport matmul_all_reduce(Communicator& comm, const GemmAllReduceArguments& arguments);
// On GPU ranks, into `stream`, with the operands that matmul_reduce_scatter() takes there.
TILEWIRE_API CallReport matmul_all_reduce(Communicator& comm, const GemmAllReduceArguments& arguments, void* stream);

struct GemmAllReduceShape {
  int64_t m = 0;
  int64_t k = 0;  // of this rank
  int64_t n = 0;
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::bf16;
  std::optional<DataType> wire_dtype{};  // dtype unless given
  bool has_bias = false;
  bool has_residual = false;
  std::string plan_json;
};

// Shapes fixed once, for many calls: agreement, plan and memory come at creation, which is collective. shape(),
// plan_json(), explain(), Shape and Query are those of OpHandle.
class TILEWIRE_API GemmAllReduce : public OpHandle<GemmAllReduceShape> {
 public:
  GemmAllReduce(Communicator& comm, const Shape& shape);

  // `arguments` must have the shapes of the handle, bias and residual where it has them; plan and dtypes of wire and
  // result are the handle's. The communicator must still live.
  CallReport operator()(const GemmAllReduceArguments& arguments) const;
  // On GPU ranks.
  CallReport operator()(const GemmAllReduceArguments& arguments, void* stream) const;
};

// Throws Error(invalid_argument) naming the number that cannot be, Error(resource) when no plan fits the arena.
TILEWIRE_API PlanAnswer plan_matmul_all_reduce(const GemmAllReduce::Query& query);

}  // namespace tilewire

// GEMM+ReduceScatter: y = this rank's rows of sum over ranks of a * b. Every rank brings all rows of a, and its own part
// of the depth; every row of the sum goes to one rank.
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
#include <vector>

namespace tilewire {

// What is rounded on the way, all else being fp32:
//   each rank's product        to the wire's dtype
//   the sum of a node's ranks  to bf16 over a bf16 wire; to fp32, which is no rounding, over others; nothing where there
//                              is one node
//   the result                 to out_dtype
// Products are added by rank within a node, then the nodes' sums by node, then bias, then residual. So the bits of a
// result depend on the layout of ranks and the wire's dtype, and not on plan or timing, nor on which rank owns a row.
struct GemmReduceScatterArguments {
  MatrixView a;  // [M, K_r], any strides; M is the same on all ranks, K_r is this rank's own: with 0 it adds zeros
  MatrixView b;  // [K_r, N] of a's dtype, any strides: a weight stored as [N, K_r] is a view with its strides swapped
  const void* bias = nullptr;  // N contiguous values of bias_dtype, or nullptr; of this rank's rows
  DataType bias_dtype = DataType::fp32;
  std::optional<MatrixView> residual;  // [own rows, N] of any dtype and strides, added behind the bias
  DataType out_dtype = DataType::bf16;
  std::optional<DataType> wire_dtype;  // a's unless given; the same on all ranks
  // How many rows of the sum each rank gets: a list, M in all, or `same`: as evenly as they go, the first M mod ranks
  // ranks one more. There is nothing to exchange.
  RowCounts rows;
  std::string plan_json;  // empty: the planner chooses

  // Gives memory for the result, [rows, N] of out_dtype with contiguous columns, before anything is sent. What it throws
  // refuses the call on all ranks; std::bad_alloc and std::length_error become Error(resource) with the bytes asked for.
  std::function<MatrixView(int64_t rows)> make_results;

  // Stands in for the arithmetic of a product of rows x cols x k, for tests and benchmarks of everything else.
  std::function<void(int64_t rows, int64_t cols, int64_t k)> compute_stand_in;
};

// Throws Error as all_gather_matmul() does, and leaves results NaN where that does.
TILEWIRE_API CallReport matmul_reduce_scatter(Communicator& comm, const GemmReduceScatterArguments& arguments);
// On GPU ranks, into `stream`, as all_gather_matmul() there. What a kernel takes: a and b of bf16 or fp16, a with contiguous columns, b as [K_r, N] or [N, K_r]; addresses and row pitches of both are multiples
// of 16 bytes. Bias, residual and results are as on CPU ranks.
TILEWIRE_API CallReport matmul_reduce_scatter(Communicator& comm, const GemmReduceScatterArguments& arguments,
                                              void* stream);

struct GemmReduceScatterShape {
  std::vector<int64_t> rows;  // of the result on every rank
  int64_t k = 0;              // of this rank
  int64_t n = 0;
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::bf16;
  std::optional<DataType> wire_dtype;  // dtype unless given
  std::string plan_json;
};

// Shapes fixed once, for many calls: agreement, plan and memory come at creation, which is collective. shape(),
// plan_json(), explain(), Shape and Query are those of OpHandle.
class TILEWIRE_API GemmReduceScatter : public OpHandle<GemmReduceScatterShape> {
 public:
  GemmReduceScatter(Communicator& comm, const Shape& shape);

  // `arguments` must have the shapes of the handle; rows, plan and dtypes of wire and result are the handle's. The
  // communicator must still live.
  CallReport operator()(const GemmReduceScatterArguments& arguments) const;
  // On GPU ranks.
  CallReport operator()(const GemmReduceScatterArguments& arguments, void* stream) const;
};

// Throws Error(invalid_argument) naming the number that cannot be, Error(resource) when no plan fits the arena.
TILEWIRE_API PlanAnswer plan_matmul_reduce_scatter(const GemmReduceScatter::Query& query);

}  // namespace tilewire

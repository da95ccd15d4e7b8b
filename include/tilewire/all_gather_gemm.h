// AllGather+GEMM: y = all_gather(a) * b, for one or several weights that share one gather. The rows of all ranks' a, in
// rank order, times this rank's own b.
//
// A call blocks until the results are there. It either throws on all ranks or on none, except that a call refused by
// the checks of some ranks throws on those at once and on the others as soon as they hear of it.
#pragma once

#include <tilewire/call.h>
#include <tilewire/communicator.h>
#include <tilewire/matrix.h>
#include <tilewire/op_handle.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tilewire {

struct AllGatherGemmResults {
  std::vector<MatrixView> out;  // [sum M_r, N_w] for each weight, of out_dtype, columns contiguous
  MatrixView gathered;          // [sum M_r, K] of a's dtype, when asked for
};

struct AllGatherGemmArguments {
  MatrixView a;               // [M_r, K], any strides, 0 rows are legal
  std::vector<MatrixView> b;  // 1 to 8 weights [K, N_w] of a's dtype, any strides: a weight stored as [N, K] is a view
                              // with its strides swapped
  std::vector<const void*> bias;  // empty, or one a weight: N_w contiguous values of bias_dtype, or nullptr
  DataType bias_dtype = DataType::fp32;
  DataType out_dtype = DataType::bf16;
  RowCounts rows;
  bool return_gathered = false;
  std::string plan_json;  // empty: the planner chooses

  // Gives memory for the results, once the number of rows is known and before anything is sent. What it throws refuses
  // the call on all ranks; std::bad_alloc and std::length_error become Error(resource) with the bytes asked for.
  std::function<AllGatherGemmResults(int64_t total_rows)> make_results;

  // Stands in for the arithmetic of a tile of rows x cols x k, for tests and benchmarks of everything else.
  std::function<void(int64_t rows, int64_t cols, int64_t k)> compute_stand_in;
};

// Throws Error: invalid_argument (names the argument), mismatch (names both ranks and values), deadline, peer_lost,
// aborted, refused, resource, closed.
//
// Results: once make_results has been asked, every error but an invalid_argument of this rank's own checks leaves them
// NaN. Before that (own checks refuse the call, row counts cannot be exchanged, the communicator is already dead or
// closed) make_results is not asked and no memory of the caller is touched: an array from an earlier call keeps what it
// holds. After any error but an invalid_argument that all ranks get the communicator is dead.
TILEWIRE_API CallReport all_gather_matmul(Communicator& comm, const AllGatherGemmArguments& arguments);

// On GPU ranks (the option device = cuda): all matrices lie in memory of this rank's GPU, and the call is put into
// `stream`, a cudaStream_t of it. Returns when it is there. What goes wrong later is thrown by the next call, or by
// check(), synchronize() or close() of the communicator; results that are not finished then are NaN.
//
// Calls of a communicator follow each other in the order in which they are made, whatever their streams. The first call
// of a shape waits for those before it and for the other ranks; later ones neither wait nor allocate, and may be
// captured in a graph, whose replays are calls too. Replays are in order with other calls only where both are on one
// stream, and none may run when the communicator is closed.
//
// What a kernel takes: bf16 or fp16, results of the same dtype, K of at least 1, a and results with contiguous columns,
// weights all as [K, N] or all as [N, K]; addresses and row pitches are multiples of 16 bytes. Each row of a result is
// written up to the next multiple of 16 bytes. Anything else throws Error(invalid_argument) with its name.
TILEWIRE_API CallReport all_gather_matmul(Communicator& comm, const AllGatherGemmArguments& arguments, void* stream);

struct AllGatherGemmShape {
  std::vector<int64_t> rows;  // of every rank
  int64_t k = 0;
  std::vector<int64_t> cols;  // of each weight
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::bf16;
  bool return_gathered = false;
  std::string plan_json;
};

// Shapes fixed once, for many calls: agreement, plan and memory come at creation, which is collective. shape(),
// plan_json(), explain(), Shape and Query are those of OpHandle.
class TILEWIRE_API AllGatherGemm : public OpHandle<AllGatherGemmShape> {
 public:
  AllGatherGemm(Communicator& comm, const Shape& shape);

  // `arguments` must have the shapes of the handle; rows and plan are the handle's. The communicator must still live.
  CallReport operator()(const AllGatherGemmArguments& arguments) const;
  // On GPU ranks.
  CallReport operator()(const AllGatherGemmArguments& arguments, void* stream) const;
};

// Throws Error(invalid_argument) naming the number that cannot be, Error(resource) when no plan fits the arena.
TILEWIRE_API PlanAnswer plan_all_gather_matmul(const AllGatherGemm::Query& query);

}  // namespace tilewire

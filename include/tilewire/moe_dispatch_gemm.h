// MoE dispatch + grouped GEMM: each token goes to the ranks of the experts that it is routed to, and each expert
// multiplies the rows that it gets by its own weight.
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

// The experts of each token: [tokens, k] whole numbers of 32 or 64 bits, any strides. -1 is no expert; the same expert
// twice gives two rows. A call looks at them once, at its begin.
struct ExpertIds {
  const void* data = nullptr;
  int64_t tokens = 0;
  int32_t k = 1;
  int64_t token_stride = 0;  // in elements
  int64_t slot_stride = 1;
  bool is_64_bit = false;
};

// What make_results() gives: y is [rows, I] with contiguous columns. A row's origin is three numbers: whose token it is,
// which of that rank's tokens, and which of the token's k experts it is for.
struct MoeDispatchResults {
  MatrixView y;
  int32_t* origins = nullptr;  // [rows, 3]
  int64_t* offsets = nullptr;  // [own experts + 1]: rows of y before each own expert's, and all that came
};

struct MoeDispatchArguments {
  MatrixView x;  // [T_r, H], bf16 or fp16, any strides; T_r is this rank's own, and may be 0
  ExpertIds topk_ids;
  std::vector<MatrixView> w1;  // [H, I] of each own expert, by their numbers, of x's dtype, any strides
  int64_t cols = 0;            // I, which a rank without experts has too
  std::vector<int32_t>
      experts;  // the rank of each expert, the same on all ranks; empty: as many on each, in rank order
  DataType out_dtype = DataType::bf16;
  // Rows that a rank may get, the same on all ranks: y has so many, and zeros (origins: -1) behind the last. More rows
  // for any rank are Error(resource) on all ranks, of which nothing has moved; y is NaN, and the communicator can be
  // used. Without it rows are counted by a call of its own first, and y is as large as it has to be.
  std::optional<int64_t> max_tokens{};
  // Tokens that a rank may bring, the same on all ranks; max_tokens unless given. Not without it. What goes to other nodes
  // has memory for so many.
  std::optional<int64_t> max_source_tokens{};
  std::string plan_json;  // empty: the planner chooses

  // Gives memory for the results before any row is sent. What it throws refuses the call on all ranks; std::bad_alloc
  // and std::length_error become Error(resource) with the bytes asked for.
  std::function<MoeDispatchResults(int64_t rows)> make_results;
};

// Rows of y lie by own expert, then by rank, token and k, whatever the plan; they have the same bits by any plan. Throws
// Error as all_gather_matmul() does, and leaves y NaN where that does.
TILEWIRE_API CallReport moe_dispatch_matmul(Communicator& comm, const MoeDispatchArguments& arguments);

// On GPU ranks, into `stream`, as all_gather_matmul() there. With max_tokens a call is one launch that waits for nobody, and
// may be captured; how many rows came stands in `offsets` alone. Without it the host waits for the counts of all ranks, and
// so for what is in the stream before the call.
//
// The kernel alone knows how tokens are routed: the report has no bytes, and what it finds wrong is thrown by check() or
// synchronize() of the communicator, once, and by no call. Such are more rows than max_tokens (on all ranks), and numbers
// in topk_ids that name no expert (on their rank), which count as -1.
//
// What a kernel takes: results of x's dtype, x and y with contiguous columns, w1 at equal distances, all as [H, I] or all as
// [I, H]; addresses, pitches and those distances are multiples of 16 bytes. Anything else throws Error(invalid_argument)
// with its name.
TILEWIRE_API CallReport moe_dispatch_matmul(Communicator& comm, const MoeDispatchArguments& arguments, void* stream);

struct MoeDispatchShape {
  std::vector<int32_t> experts;  // the rank of each
  int64_t h = 0;
  int64_t cols = 0;
  int32_t k = 1;
  int64_t max_tokens = 0;
  std::optional<int64_t> max_source_tokens{};  // max_tokens unless given
  // For plan queries, a handle takes no notice: what each rank brings; 0: what gives each rank max_tokens rows where all experts get as many.
  int64_t tokens = 0;
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::bf16;
  std::string plan_json;
};

// Shapes fixed once, for many calls: agreement, plan and memory come at creation, which is collective. shape(),
// plan_json(), explain(), Shape and Query are those of OpHandle.
class TILEWIRE_API MoeDispatchGemm : public OpHandle<MoeDispatchShape> {
 public:
  MoeDispatchGemm(Communicator& comm, const Shape& shape);

  // `arguments` must have the shapes of the handle, but for the number of tokens; experts, limits, dtype of the result
  // and plan are the handle's. The communicator must still live.
  CallReport operator()(const MoeDispatchArguments& arguments) const;
  // On GPU ranks, into a cudaStream_t.
  CallReport operator()(const MoeDispatchArguments& arguments, void* stream) const;
};

// Throws Error(invalid_argument) naming the number that cannot be, Error(resource) when no plan fits the arena.
TILEWIRE_API PlanAnswer plan_moe_dispatch_matmul(const MoeDispatchGemm::Query& query);

}  // namespace tilewire

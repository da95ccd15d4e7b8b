// Ring attention, forward: o = softmax(q k^T * scale) v over the keys and values of all ranks, and the logarithm of each
// row's sum. The sequence is cut over the ranks: every rank brings some rows of q, of k and of v.
//
// A call blocks until the results are there. It either throws on all ranks or on none, except that a call refused by the
// checks of some ranks throws on those at once and on the others as soon as they hear of it.
#pragma once

#include <tilewire/call.h>
#include <tilewire/communicator.h>
#include <tilewire/matrix.h>
#include <tilewire/op_handle.h>
#include <tilewire/tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tilewire {

// Which place in the whole sequence each row has. The mask looks at nothing else.
enum class SequencePlacement {
  contiguous,  // rank after rank
  zigzag,  // the sequence is cut into 2 R blocks by ceiling, rank r brings blocks r and 2 R - 1 - r; so causal ranks
           // have as much to do as each other
  given,   // RingAttentionArguments::positions; told to all ranks in every call, one round trip
};

// Rows of each rank of a zigzag of so many rows over so many ranks. Throws Error(invalid_argument) for less than 0 rows or
// 1 rank.
TILEWIRE_API std::vector<int64_t> zigzag_rows(int64_t total, int32_t ranks);

// A row that sees no key gives zeros and a logarithm of -infinity. All sums are kept in fp32, and each row adds the keys of
// one rank after the other in a fixed order: its own, those of the ranks of its node behind it, then node after node. So
// the bits depend on the layout of ranks, and not on plan or timing.
struct RingAttentionArguments {
  HeadsView q;  // [B, S_r, Hq, D], any strides; S_r is this rank's own and may be 0. D is 64 or 128, bf16 or fp16
  HeadsView k;  // [B, S_kv_r, Hkv, D]; Hq is a multiple of Hkv
  HeadsView v;  // as k
  // Row p of all queries sees key j only where j <= p + (all keys - all queries): the last query sees the last key.
  bool causal = false;
  std::optional<double> scale{};  // 1 / sqrt(D) unless given
  SequencePlacement placement = SequencePlacement::contiguous;
  std::vector<int64_t> positions{};                    // given: of this rank's queries, in any order, from 0 on
  std::optional<std::vector<int64_t>> kv_positions{};  // and of its keys; as positions unless given
  // Several documents in one sequence: where each begins and, last, where the last one ends; the same on all ranks. Rows
  // of a document see keys of it alone. They may cross ranks and be empty; rows behind the last one are pads, which see
  // nothing and are not seen. Empty: one document. Of the keys: the same unless given.
  std::vector<int64_t> cu_seqlens{};
  std::optional<std::vector<int64_t>> kv_cu_seqlens{};
  RowCounts rows{};                     // of q
  RowCounts kv_rows{};                  // of k and v; `same`: known as those of q are, and the same list
  std::optional<DataType> out_dtype{};  // q's unless given
  std::string plan_json{};              // empty: the planner chooses

  // Gives memory for the results before anything is sent: out [B * S_r, Hq * D] of out_dtype, lse [B * Hq, S_r] of fp32,
  // both with contiguous columns. What it throws refuses the call on all ranks; std::bad_alloc and std::length_error
  // become Error(resource) with the bytes asked for.
  struct Results {
    MatrixView out;
    MatrixView lse;
  };
  std::function<Results()> make_results{};
};

// Throws Error as all_gather_matmul() does, and leaves results NaN where that does.
TILEWIRE_API CallReport ring_attention(Communicator& comm, const RingAttentionArguments& arguments);
// On GPU ranks, into `stream`, as all_gather_matmul() does: q, k, v and results in this rank's GPU memory, their columns
// contiguous, addresses and other strides multiples of 16 bytes (those of lse aside); out_dtype is q's, a scale above 0.
// Positions that are given and counts that are exchanged cannot be part of a graph, and documents only when a call has had
// them before.
TILEWIRE_API CallReport ring_attention(Communicator& comm, const RingAttentionArguments& arguments, void* stream);

struct RingAttentionShape {
  std::vector<int64_t> rows;       // of each rank
  std::vector<int64_t> kv_rows{};  // empty: as rows
  int64_t batch = 1;
  int64_t q_heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 128;
  DataType dtype = DataType::bf16;
  DataType out_dtype = DataType::bf16;
  bool causal = false;
  SequencePlacement placement = SequencePlacement::contiguous;  // not given
  std::vector<int64_t> cu_seqlens{};
  std::optional<std::vector<int64_t>> kv_cu_seqlens{};
  std::string plan_json{};
};

// Shapes fixed once, for many calls: agreement, plan and memory come at creation, which is collective. shape(),
// plan_json(), explain(), Shape and Query are those of OpHandle.
class TILEWIRE_API RingAttention : public OpHandle<RingAttentionShape> {
 public:
  RingAttention(Communicator& comm, const Shape& shape);

  // `arguments` must have the shapes of the handle; rows, mask, placement, documents, plan and dtype of the result are the
  // handle's. The communicator must still live.
  CallReport operator()(const RingAttentionArguments& arguments) const;
  // On GPU ranks.
  CallReport operator()(const RingAttentionArguments& arguments, void* stream) const;
};

// Throws Error(invalid_argument) naming the number that cannot be, Error(resource) when no plan fits the arena.
TILEWIRE_API PlanAnswer plan_ring_attention(const RingAttention::Query& query);

}  // namespace tilewire

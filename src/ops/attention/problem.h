// One ring attention as seen by one rank: o = softmax(q k^T * scale) v over the keys of all ranks, and the logarithm of
// the sums.
#pragma once

#include <tilewire/data_type.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"
#include "ops/attention/mask.h"
#include "ops/attention/positions.h"

namespace tilewire::attention {

inline constexpr const char* kCallName = "ring_attention";  // for errors, records, traces and plans
inline constexpr int64_t kHeadDims[] = {64, 128};

struct PlanChoice;  // plan.h

struct Problem {
  using Choice = PlanChoice;

  // Agreed by all ranks:
  std::vector<int64_t> rows{};     // of q on each rank; zero is legal
  std::vector<int64_t> kv_rows{};  // of k and v on each rank
  int64_t batch = 0;
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  DataType dtype = DataType::bf16;
  bool is_causal = false;
  Placement placement = Placement::contiguous;
  std::vector<Positions> given{};       // of the queries of each rank, where they are given
  std::vector<Positions> given_kv{};    // and of its keys
  std::vector<int64_t> documents{};     // where they begin among the queries, and the end of the last one; or none
  std::vector<int64_t> kv_documents{};  // and among the keys

  // This rank's own:
  DataType out_dtype = DataType::bf16;

  // What plans, layouts and the tables that are kept depend on: not the positions that are given and not the documents,
  // which are others in each step of a training.
  Problem shape() const;
  bool is_shape() const { return given.empty() && given_kv.empty() && documents.empty() && kv_documents.empty(); }
  // The problem that a plan of the shape is priced for. Given positions may be any: all rows see all keys.
  Problem priced() const;

  int64_t total_rows() const;
  int64_t total_kv_rows() const;
  int64_t pairs() const { return batch * kv_heads; }  // of a batch entry and a head of k and v
  int64_t heads_of_pair() const { return kv_heads == 0 ? 0 : q_heads / kv_heads; }
  // Of a row of one head: its key, and its value behind it.
  int64_t kv_row_bytes() const { return 2 * head_dim * size_bytes(dtype); }
  int64_t result_bytes(Rank of) const;

  std::vector<Positions> positions() const;
  std::vector<Positions> kv_positions() const;
  MaskRule mask() const;
  bool knows_positions() const { return placement != Placement::given || !given.empty() || !given_kv.empty(); }

  // Throws Error(invalid_argument) that names what is wrong. Looks at no other rank. Of a shape positions may be missing.
  void validate() const;
  // The part of it that needs no rows of other ranks.
  void validate_documents() const;
  // What has to be equal on all ranks, part by part. Who calls says which op it is of.
  CallParts agreed() const;
  // The whole problem, for logs and errors. Again without the op's name.
  std::string text() const;

  friend bool operator==(const Problem&, const Problem&) = default;
};

}  // namespace tilewire::attention

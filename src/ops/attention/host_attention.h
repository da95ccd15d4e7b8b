// The arithmetic of a CPU rank: one tile of queries of a head against keys and values, block after block, all in fp32.
//
//   m = max of the scores so far, l = sum of exp(score - m), o = sum of exp(score - m) v
//
// with a new block everything so far is shifted to the new maximum. So it matters not in which block the large scores
// are, and nothing is rounded before the end. The bits of a row depend on the row, on the blocks in their order and on the
// variant of host_gemm.h, and on nothing else: a block that a row does not see leaves it as it is.
#pragma once

#include <tilewire/data_type.h>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "arithmetic/host_gemm.h"
#include "arithmetic/host_number.h"
#include "ops/attention/mask.h"

namespace tilewire::attention {

// Keys and values of one head, one behind the other, and where they are in the whole sequence.
struct HostKeys {
  const void* keys = nullptr;  // [positions, head_dim]
  const void* values = nullptr;
  DataType dtype = DataType::bf16;
  std::span<const int64_t> positions;
};

// What there is of a tile between two blocks: kept from one source to the next, in memory of size() numbers.
struct HostSums {
  int64_t rows = 0;
  int64_t head_dim = 0;
  float* out = nullptr;   // [rows, head_dim]
  float* most = nullptr;  // [rows] -infinity: no key so far
  float* sum = nullptr;   // [rows]

  HostSums(int64_t row_count, int64_t dim, float* memory)
      : rows(row_count), head_dim(dim), out(memory), most(memory + rows * dim), sum(most + rows) {}
  static int64_t size(int64_t rows, int64_t head_dim) { return rows * (head_dim + 2); }

  // No key so far.
  void begin();
  // Row `row` of the result, and the logarithm of its sum: zeros and -infinity where it has seen no key. `scratch` is
  // used.
  float finish_row(int64_t row, std::vector<float>& scratch, Elements out_row) const;
};

// The working memory of one thread.
class HostAttention {
 public:
  explicit HostAttention(HostGemmVariant variant) : gemm_(variant) {}

  // The queries of the tile whose blocks are added next: query(row) gives the elements of a row.
  template <class Query>
  void set_queries(int64_t rows, int64_t head_dim, const Query& query) {
    queries_.resize(static_cast<size_t>(rows * head_dim));
    for (int64_t r = 0; r < rows; ++r) to_fp32(query(r), head_dim, queries_.data() + r * head_dim);
  }
  // Adds a block of at most kKeyBlock keys. spans[row] says which positions a row sees.
  void add(HostSums& sums, const HostKeys& block, std::span<const KeySpan> spans, float scale);

 private:
  void shift(HostSums& sums, int64_t row, int64_t keys);
  void add_values(HostSums& sums, const HostKeys& block, std::span<const KeySpan> spans, bool is_masked);

  HostGemmScratch gemm_;
  std::vector<float> queries_;   // [rows, head_dim]
  std::vector<float> scores_;    // [rows, keys], then exp(score - m)
  std::vector<float> products_;  // [rows, head_dim]
};

}  // namespace tilewire::attention

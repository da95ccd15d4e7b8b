// One GEMM+ReduceScatter as seen by one rank: the rows that this rank owns of the sum of all ranks' a * b.
#pragma once

#include <tilewire/data_type.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"
#include "reduction/wire_types.h"

namespace tilewire::gemm_rs {

inline constexpr const char* kCallName = "matmul_reduce_scatter";  // for errors, records, traces and plans

struct PlanChoice;  // plan.h

struct Problem {
  using Choice = PlanChoice;

  // Agreed by all ranks:
  std::vector<int64_t> rows;             // of the result on each rank, together those of each rank's a; zero is legal
  int64_t n = 0;                         // columns of each rank's b, and of the result
  DataType dtype = DataType::bf16;       // of a and b
  DataType wire_dtype = DataType::bf16;  // see wire_types()

  // This rank's own:
  int64_t k = 0;  // columns of a, rows of b; with 0 it adds zeros
  DataType out_dtype = DataType::bf16;

  int64_t total_rows() const;
  int64_t result_rows(Rank of) const { return rows[static_cast<size_t>(of.value)]; }
  int64_t result_bytes(Rank of) const;  // of a problem that validate() has passed

  // Throws Error(invalid_argument) that names what is wrong. Looks at no other rank.
  void validate() const;
  // What has to be equal on all ranks. Who calls says which op it is of.
  CallParts agreed() const;
  // The whole problem, for logs and errors. Again without the op's name.
  std::string text() const;

  friend bool operator==(const Problem&, const Problem&) = default;
};

}  // namespace tilewire::gemm_rs

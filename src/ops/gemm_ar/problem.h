// One GEMM+AllReduce as seen by one rank: the sum of all ranks' a * b, all of it on every rank.
#pragma once

#include <tilewire/data_type.h>

#include <cstdint>
#include <string>

#include "base/call_text.h"
#include "base/ids.h"
#include "reduction/wire_types.h"

namespace tilewire::gemm_ar {

inline constexpr const char* kCallName = "matmul_all_reduce";  // for errors, records, traces and plans

struct PlanChoice;  // plan.h

struct Problem {
  using Choice = PlanChoice;

  // Agreed by all ranks:
  int64_t m = 0;                         // rows of each rank's a, and of the result
  int64_t n = 0;                         // columns of each rank's b, and of the result
  DataType dtype = DataType::bf16;       // of a and b
  DataType wire_dtype = DataType::bf16;  // see wire_types()
  DataType out_dtype = DataType::bf16;   // finished chunks travel as it
  bool has_bias = false;
  bool has_residual = false;

  // This rank's own:
  int64_t k = 0;  // columns of a, rows of b; with 0 it adds zeros

  int64_t total_rows() const { return m; }
  int64_t result_rows(Rank) const { return m; }
  int64_t result_bytes(Rank) const;  // of a problem that validate() has passed

  // Throws Error(invalid_argument) that names what is wrong. Looks at no other rank.
  void validate() const;
  // What has to be equal on all ranks. Who calls says which op it is of.
  CallParts agreed() const;
  // The whole problem, for logs and errors. Again without the op's name.
  std::string text() const;

  friend bool operator==(const Problem&, const Problem&) = default;
};

}  // namespace tilewire::gemm_ar

// One AllGather+GEMM as seen by one rank: y_w = all_gather(a) * b_w (+ bias_w) for one or several weights w.
#pragma once

#include <tilewire/data_type.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"

namespace tilewire::ag_gemm {

inline constexpr const char* kCallName = "all_gather_matmul";  // for errors, records, traces and plans

struct PlanChoice;  // plan.h

struct Problem {
  using Choice = PlanChoice;

  // Agreed by all ranks:
  std::vector<int64_t> rows;        // of a on each rank; zero is legal
  int64_t k = 0;                    // columns of a, rows of each b
  DataType dtype = DataType::bf16;  // of a and b

  // This rank's own:
  std::vector<int64_t> cols;  // of each weight
  DataType out_dtype = DataType::bf16;
  bool wants_gathered = false;  // return the gathered a too

  int64_t total_rows() const;
  int64_t result_bytes(Rank of) const;  // of a problem that validate() has passed; the same on all ranks

  // Throws Error(invalid_argument) that names what is wrong. Looks at no other rank.
  void validate() const;
  // What has to be equal on all ranks. Who calls says which op it is of.
  CallParts agreed() const;
  // The whole problem, for logs and errors. Again without the op's name.
  std::string text() const;

  friend bool operator==(const Problem&, const Problem&) = default;
};

}  // namespace tilewire::ag_gemm

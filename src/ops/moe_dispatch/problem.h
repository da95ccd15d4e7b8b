// One MoE dispatch + grouped GEMM as seen by one rank: each token goes to the ranks of the experts that it is routed to,
// and each expert multiplies the rows that it gets by its own weight, y_e = x_e * w_e.
#pragma once

#include <tilewire/data_type.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"

namespace tilewire::moe_dispatch {

inline constexpr const char* kCallName = "moe_dispatch_matmul";  // for errors, records, traces and plans

struct PlanChoice;  // plan.h

struct Problem {
  using Choice = PlanChoice;

  // Agreed by all ranks:
  std::vector<int32_t> rank_of_expert;  // the rank that has each expert's weight
  int64_t h = 0;                        // columns of x, rows of each weight
  int32_t top_k = 1;                    // experts named for each token
  DataType dtype = DataType::bf16;      // of x and the weights
  int64_t most_rows = 0;                // that a rank may get in the call, of all its experts; more are an error
  int64_t planned_tokens = 0;           // of each rank, for whatever all ranks have to choose alike
  int64_t most_tokens = 0;              // that a rank may bring
  bool counts_only = false;             // rows are counted and nothing is moved

  // This rank's own:
  int64_t cols = 0;  // of each weight
  DataType out_dtype = DataType::bf16;
  int64_t result_rows = 0;  // of the result; no plan depends on it, and no text has it

  int32_t experts() const { return static_cast<int32_t>(rank_of_expert.size()); }
  int64_t result_bytes(Rank of) const;  // of y, of a problem that validate() has passed

  // Throws Error(invalid_argument) that names what is wrong. Looks at no other rank.
  void validate() const;
  // What has to be equal on all ranks, as text for people and for the hash. Who calls says which op it is of.
  CallParts agreed() const;
  // The whole problem, for logs and errors. Again without the op's name.
  std::string text() const;

  friend bool operator==(const Problem&, const Problem&) = default;
};

// Rows of a rank's tokens, and so their tables, are numbered in 32 bits. Throws Error(invalid_argument).
void check_number_of_tokens(int64_t tokens, int32_t top_k);

// The problem of a call that says how many rows a rank may get, and where given how many tokens it may bring. Its
// planned_tokens stay where there are any; otherwise they are what gives each rank so many rows.
Problem limited_problem(Problem problem, int64_t max_tokens, std::optional<int64_t> max_source_tokens);

// Sizes that change with every call, made coarse, so that few plans serve all of them: up to 12 % more.
int64_t rounded_size(int64_t size);

}  // namespace tilewire::moe_dispatch

#include "ops/ag_gemm/arguments_check.h"

#include <fmt/format.h>

#include "executor/matrix_checks.h"

namespace tilewire::ag_gemm {
namespace {

std::string weight_name(const Arguments& args, size_t w) { return argument_name("b", w, args.b.size()); }

void check_weight(const Arguments& args, size_t w) {
  const MatrixView &a = args.a, &b = args.b[w];
  const std::string name = weight_name(args, w);
  if (b.rows != a.cols) {
    refuse_argument(kCallName, name + " does not fit a",
                    fmt::format("a is {}, {} is {} (seen as [K, N])", shape_text(a), name, shape_text(b)),
                    "a's columns must equal K", "pass the weight as [K, N], or as [N, K] through its transposed view");
  }
  if (b.dtype != a.dtype) {
    refuse_argument(kCallName, name + " has another dtype than a",
                    fmt::format("a is {}, {} is {}", to_string(a.dtype), name, to_string(b.dtype)), "must be equal");
  }
  check_memory(kCallName, {name, b});
}

// All that a call reads while it writes results.
std::vector<NamedMatrix> read_matrices(const Arguments& args, const Problem& problem) {
  std::vector<NamedMatrix> read = {{"a", args.a}};
  for (size_t w = 0; w < args.b.size(); ++w) read.push_back({weight_name(args, w), args.b[w]});
  for (size_t w = 0; w < args.bias.size(); ++w) {
    read.push_back({argument_name("bias", w, args.bias.size()),
                    {const_cast<void*>(args.bias[w]), 1, problem.cols[w], problem.cols[w], 1, args.bias_dtype}});
  }
  return read;
}

}  // namespace

void check_arguments(const Arguments& args, int32_t ranks, Rank me) {
  if (args.a.rows < 0 || args.a.cols < 0) {
    refuse_argument(kCallName, "a has a negative size", "a is " + shape_text(args.a), ">= 0");
  }
  check_memory(kCallName, {"a", args.a});
  for (size_t w = 0; w < args.b.size(); ++w) check_weight(args, w);
  if (!args.bias.empty() && args.bias.size() != args.b.size()) {
    refuse_argument(kCallName, "bias has the wrong length",
                    fmt::format("{} biases, {} weights", args.bias.size(), args.b.size()), "one for each weight");
  }
  if (args.rows.from == RowCounts::From::list) {
    check_row_counts(kCallName, args.rows.counts, ranks);
    check_own_rows(kCallName, args.rows.counts, me, {"a", args.a});
  }
}

HostOperands make_operands(const Arguments& args, const Problem& problem) {
  const Arguments::Results results = args.make_results(problem);
  HostOperands operands{.a = args.a,
                        .b = args.b,
                        .bias = args.bias,
                        .bias_dtype = args.bias_dtype,
                        .out = results.out,
                        .gathered = problem.wants_gathered ? results.gathered : MatrixView{}};
  operands.bias.resize(args.b.size(), nullptr);
  if (operands.out.size() != args.b.size()) {
    refuse_argument(kCallName, "out has the wrong length",
                    fmt::format("{} results, {} weights", operands.out.size(), args.b.size()), "one for each weight");
  }
  std::vector<NamedMatrix> written;
  for (size_t w = 0; w < operands.out.size(); ++w) {
    written.push_back({argument_name("out", w, operands.out.size()), operands.out[w]});
    check_result(kCallName, written.back(),
                 {.rows = problem.total_rows(), .cols = problem.cols[w], .dtype = problem.out_dtype});
  }
  if (problem.wants_gathered) {
    written.push_back({"gathered", operands.gathered});
    check_result(kCallName, written.back(), {.rows = problem.total_rows(), .cols = problem.k, .dtype = problem.dtype});
  }
  check_no_overlap(kCallName, written, read_matrices(args, problem));
  return operands;
}

}  // namespace tilewire::ag_gemm

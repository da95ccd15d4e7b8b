#include "ops/ag_gemm/arguments_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/bytes.h"

namespace tilewire::ag_gemm {
namespace {

[[noreturn]] void refuse(std::string what, std::string values, std::string limit, std::string advice = {}) {
  throw Error(ErrorKind::invalid_argument, {.what = std::move(what),
                                            .where = "all_gather_matmul",
                                            .values = std::move(values),
                                            .limit = std::move(limit),
                                            .advice = std::move(advice)});
}

std::string shape(const MatrixView& m) { return fmt::format("[{}, {}]", m.rows, m.cols); }

void check_rows(const Arguments& args, int32_t ranks, Rank me) {
  const Rows& rows = args.rows;
  if (rows.policy != Rows::Policy::given) return;
  if (rows.counts.size() != static_cast<size_t>(ranks)) {
    refuse("rows has the wrong length", fmt::format("rows = [{}]", fmt::join(rows.counts, ", ")),
           fmt::format("one count for each of {} ranks", ranks));
  }
  for (const int64_t count : rows.counts) {
    if (count < 0)
      refuse("rows has a negative count", fmt::format("rows = [{}]", fmt::join(rows.counts, ", ")), ">= 0");
  }
  if (rows.counts[me.value] != args.a.rows) {
    refuse("rows does not match a",
           fmt::format("rows[{}] = {}, a is {}", me.value, rows.counts[me.value], shape(args.a)), "must be equal",
           "rows lists what each rank brings, the same list on all ranks");
  }
}

// The bytes that a view may touch.
struct Span {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  bool overlaps(const Span& o) const { return begin < o.end && o.begin < end; }
};

Span span_of(const MatrixView& m) {
  if (m.rows == 0 || m.cols == 0 || m.data == nullptr) return {};
  const int64_t element = size_bytes(m.dtype);
  const int64_t r = (m.rows - 1) * m.row_stride, c = (m.cols - 1) * m.col_stride;
  const auto* base = static_cast<const std::byte*>(m.data);
  return {base + (std::min<int64_t>(r, 0) + std::min<int64_t>(c, 0)) * element,
          base + (std::max<int64_t>(r, 0) + std::max<int64_t>(c, 0) + 1) * element};
}

void check_data(const MatrixView& m, const std::string& name) {
  if (m.rows > 0 && m.cols > 0 && m.data == nullptr) {
    refuse(name + " has no memory", fmt::format("{} is {} at address 0", name, shape(m)), "not null");
  }
}

void check_result(const MatrixView& m, const std::string& name, int64_t rows, int64_t cols, DataType dtype) {
  if (m.rows != rows || m.cols != cols) {
    refuse(name + " has the wrong shape", fmt::format("{} is {}", name, shape(m)),
           fmt::format("must be [{}, {}]", rows, cols));
  }
  if (m.dtype != dtype) {
    refuse(name + " has the wrong dtype", fmt::format("{} is {}", name, to_string(m.dtype)),
           fmt::format("must be {}", to_string(dtype)));
  }
  if (!m.has_contiguous_rows() || (m.rows > 1 && m.cols > 0 && m.row_stride < m.cols)) {
    refuse(name + " has strides that cannot be written",
           fmt::format("{} strides are ({}, {})", name, m.row_stride, m.col_stride),
           "columns contiguous, rows that do not overlap", "pass a C-contiguous array or leave out away");
  }
  check_data(m, name);
}

}  // namespace

void check_arguments(const Arguments& args, int32_t ranks, Rank me) {
  if (args.a.rows < 0 || args.a.cols < 0) refuse("a has a negative size", "a is " + shape(args.a), ">= 0");
  check_data(args.a, "a");
  for (size_t w = 0; w < args.b.size(); ++w) {
    const MatrixView& b = args.b[w];
    const std::string name = args.b.size() == 1 ? "b" : fmt::format("b[{}]", w);
    if (b.rows != args.a.cols) {
      refuse(name + " does not fit a", fmt::format("a is {}, {} is {} (seen as [K, N])", shape(args.a), name, shape(b)),
             "a's columns must equal K", "pass the weight as [K, N], or as [N, K] through its transposed view");
    }
    if (b.dtype != args.a.dtype) {
      refuse(name + " has another dtype than a",
             fmt::format("a is {}, {} is {}", to_string(args.a.dtype), name, to_string(b.dtype)), "must be equal");
    }
    check_data(b, name);
  }
  if (!args.bias.empty() && args.bias.size() != args.b.size()) {
    refuse("bias has the wrong length", fmt::format("{} biases, {} weights", args.bias.size(), args.b.size()),
           "one for each weight");
  }
  check_rows(args, ranks, me);
}

HostOperands make_operands(const Arguments& args, const Problem& problem) {
  const Arguments::Results results = args.make_results(problem);
  HostOperands operands{.a = args.a,
                        .b = args.b,
                        .bias = args.bias,
                        .bias_dtype = args.bias_dtype,
                        .out = results.out,
                        .gathered = results.gathered};
  operands.bias.resize(args.b.size(), nullptr);
  if (operands.out.size() != args.b.size()) {
    refuse("out has the wrong length", fmt::format("{} results, {} weights", operands.out.size(), args.b.size()),
           "one for each weight");
  }
  std::vector<std::pair<std::string, MatrixView>> written;
  for (size_t w = 0; w < operands.out.size(); ++w) {
    const std::string name = operands.out.size() == 1 ? "out" : fmt::format("out[{}]", w);
    check_result(operands.out[w], name, problem.total_rows(), problem.cols[w], problem.out_dtype);
    written.emplace_back(name, operands.out[w]);
  }
  if (problem.wants_gathered) {
    check_result(operands.gathered, "gathered", problem.total_rows(), problem.k, problem.dtype);
    written.emplace_back("gathered", operands.gathered);
  }
  std::vector<std::pair<std::string, MatrixView>> all = written;
  all.emplace_back("a", args.a);
  for (size_t w = 0; w < args.b.size(); ++w)
    all.emplace_back(args.b.size() == 1 ? "b" : fmt::format("b[{}]", w), args.b[w]);
  for (size_t w = 0; w < args.bias.size(); ++w) {
    const MatrixView bias{const_cast<void*>(args.bias[w]), 1, problem.cols[w], problem.cols[w], 1, args.bias_dtype};
    all.emplace_back(args.bias.size() == 1 ? "bias" : fmt::format("bias[{}]", w), bias);
  }
  for (size_t i = 0; i < written.size(); ++i) {
    for (size_t j = i + 1; j < all.size(); ++j) {
      if (span_of(written[i].second).overlaps(span_of(all[j].second))) {
        refuse(fmt::format("{} overlaps {}", written[i].first, all[j].first),
               fmt::format("{} at {}, {} at {}", written[i].first, fmt::ptr(written[i].second.data), all[j].first,
                           fmt::ptr(all[j].second.data)),
               "results must not alias inputs or each other");
      }
    }
  }
  return operands;
}

}  // namespace tilewire::ag_gemm

#include "operands/matrix_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cstdlib>

namespace tilewire {
namespace {

constexpr const char* kResultAdvice = "pass one that is so, or leave it away";

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

// A view as equal lines at equal distances, whichever of its dimensions they are.
struct Lines {
  const std::byte* begin = nullptr;
  int64_t count = 0;
  int64_t stride_bytes = 0;
  int64_t width_bytes = 0;
};

Lines lines_of(const MatrixView& m) {
  const int64_t element = size_bytes(m.dtype);
  const int64_t r = std::abs(m.row_stride) * element, c = std::abs(m.col_stride) * element;
  const std::byte* begin = span_of(m).begin;
  if (m.rows == 1 && (m.cols == 1 || c == element)) return {begin, 1, 0, m.cols * element};
  if (m.cols == 1 || (m.rows > 1 && r >= c)) return {begin, m.rows, r, (m.cols - 1) * c + element};
  return {begin, m.cols, c, (m.rows - 1) * r + element};
}

// Whether they are windows of one wider array, beside each other: big[:, :7] and big[:, 7:].
bool are_side_by_side(Lines a, Lines b) {
  if (a.count == 1) a.stride_bytes = b.stride_bytes;
  if (b.count == 1) b.stride_bytes = a.stride_bytes;
  if (a.stride_bytes != b.stride_bytes || a.stride_bytes == 0) return false;
  const int64_t stride = a.stride_bytes;
  const int64_t shift = ((b.begin - a.begin) % stride + stride) % stride;
  return shift >= a.width_bytes && shift + b.width_bytes <= stride;
}

void check_apart(const char* op, const NamedMatrix& written, const NamedMatrix& other) {
  if (!span_of(written.view).overlaps(span_of(other.view))) return;
  if (are_side_by_side(lines_of(written.view), lines_of(other.view))) return;
  refuse_argument(op, fmt::format("{} overlaps {}", written.name, other.name),
                  fmt::format("{} at {}, {} at {}", written.name, fmt::ptr(written.view.data), other.name,
                              fmt::ptr(other.view.data)),
                  "results must not alias inputs or each other");
}

}  // namespace

void refuse_argument(const char* op, std::string what, std::string values, std::string limit, std::string advice) {
  throw Error(ErrorKind::invalid_argument, {.what = std::move(what),
                                            .where = op,
                                            .values = std::move(values),
                                            .limit = std::move(limit),
                                            .advice = std::move(advice)});
}

std::string shape_text(const MatrixView& m) { return fmt::format("[{}, {}]", m.rows, m.cols); }

std::string argument_name(const char* name, size_t index, size_t count) {
  return count == 1 ? name : fmt::format("{}[{}]", name, index);
}

void check_memory(const char* op, const NamedMatrix& m) {
  if (m.view.rows == 0 || m.view.cols == 0 || m.view.data != nullptr) return;
  refuse_argument(op, m.name + " has no memory", fmt::format("{} is {} at address 0", m.name, shape_text(m.view)),
                  "not null");
}

void check_result(const char* op, const NamedMatrix& m, const ResultShape& expected) {
  const MatrixView& v = m.view;
  if (v.rows != expected.rows || v.cols != expected.cols) {
    refuse_argument(op, m.name + " has the wrong shape", fmt::format("{} is {}", m.name, shape_text(v)),
                    fmt::format("must be [{}, {}]", expected.rows, expected.cols), kResultAdvice);
  }
  if (v.dtype != expected.dtype) {
    refuse_argument(op, m.name + " has the wrong dtype", fmt::format("{} is {}", m.name, to_string(v.dtype)),
                    fmt::format("must be {}", to_string(expected.dtype)), kResultAdvice);
  }
  if (!v.has_contiguous_rows() || (v.rows > 1 && v.cols > 0 && v.row_stride < v.cols)) {
    refuse_argument(op, m.name + " has strides that cannot be written",
                    fmt::format("{} strides are ({}, {})", m.name, v.row_stride, v.col_stride),
                    "columns contiguous, rows that do not overlap", "pass a C-contiguous array or leave out away");
  }
  check_memory(op, m);
}

void check_no_overlap(const char* op, const std::vector<NamedMatrix>& written, const std::vector<NamedMatrix>& read) {
  for (size_t i = 0; i < written.size(); ++i) {
    for (size_t j = i + 1; j < written.size(); ++j) check_apart(op, written[i], written[j]);
    for (const NamedMatrix& m : read) check_apart(op, written[i], m);
  }
}

void check_row_counts(const char* op, const std::vector<int64_t>& counts, int32_t ranks) {
  const std::string text = fmt::format("rows = [{}]", fmt::join(counts, ", "));
  if (counts.size() != static_cast<size_t>(ranks)) {
    refuse_argument(op, "rows has the wrong length", text, fmt::format("one count for each of {} ranks", ranks));
  }
  if (std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; })) {
    refuse_argument(op, "rows has a negative count", text, ">= 0");
  }
}

void check_own_rows(const char* op, const std::vector<int64_t>& counts, Rank me, const NamedMatrix& own) {
  if (counts[me.value] != own.view.rows) {
    refuse_argument(op, "rows does not match " + own.name,
                    fmt::format("rows[{}] = {}, {} is {}", me.value, counts[me.value], own.name, shape_text(own.view)),
                    "must be equal", "rows lists what each rank brings, the same list on all ranks");
  }
}

void check_kernel_type(const char* op, DataType type) {
  if (type != DataType::fp32) return;
  refuse_argument(op, "a has elements of 32 bits", "fp32", "bf16 or fp16 on a GPU",
                  "convert a and b; sums are kept in fp32 all the same, and an out_dtype of fp32 gives them unrounded");
}

}  // namespace tilewire

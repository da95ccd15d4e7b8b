#include "operands/matrix_checks.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <functional>
#include <utility>

#include "testing/test_support.h"

namespace tilewire {
namespace {

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    return error.what();
  }
  return "";
}

MatrixView part(const OwnedMatrix& m, int64_t first_row, int64_t rows) {
  MatrixView v = m.view();
  v.data = static_cast<float*>(v.data) + first_row * v.row_stride;
  v.rows = rows;
  return v;
}

TEST(MatrixChecks, MatricesThatTouchButShareNothingAreApart) {
  const OwnedMatrix m(6, 4, DataType::fp32);
  const auto check = [&](MatrixView written, MatrixView read) {
    return error_of([&] { check_no_overlap("op", {{"out", written}}, {{"a", read}}); });
  };
  EXPECT_EQ(check(part(m, 0, 3), part(m, 3, 3)), "");
  EXPECT_EQ(check(part(m, 3, 3), part(m, 0, 3)), "");
  EXPECT_EQ(check(part(m, 0, 6), part(m, 3, 0)), "");
  EXPECT_NE(check(part(m, 0, 4), part(m, 3, 3)).find("out overlaps a"), std::string::npos);
}

// A view may walk backwards: it then begins below its address.
TEST(MatrixChecks, ANegativeStrideReachesBelowTheAddress) {
  const OwnedMatrix m(6, 4, DataType::fp32);
  MatrixView backwards = part(m, 5, 3);
  backwards.row_stride = -4;
  EXPECT_NE(error_of([&] { check_no_overlap("op", {{"out", part(m, 3, 1)}}, {{"a", backwards}}); }), "");
  EXPECT_EQ(error_of([&] { check_no_overlap("op", {{"out", part(m, 2, 1)}}, {{"a", backwards}}); }), "");
}

// Columns [first, first + cols) of all rows, as a program that keeps several arrays in one has them.
MatrixView window(const OwnedMatrix& m, int64_t first, int64_t cols) {
  MatrixView v = m.view();
  v.data = static_cast<float*>(v.data) + first;
  v.cols = cols;
  return v;
}

TEST(MatrixChecks, WindowsOfOneArrayBesideEachOtherAreApart) {
  const OwnedMatrix m(6, 12, DataType::fp32);
  const auto check = [&](MatrixView written, MatrixView read) {
    return error_of([&] { check_no_overlap("op", {{"out", written}}, {{"a", read}}); });
  };
  EXPECT_EQ(check(window(m, 0, 7), window(m, 7, 5)), "");
  EXPECT_EQ(check(window(m, 7, 5), window(m, 0, 7)), "");
  EXPECT_NE(check(window(m, 0, 7), window(m, 6, 5)), "") << "a column is in both";
  EXPECT_NE(check(window(m, 6, 6), window(m, 0, 7)), "") << "a column is in both";
  MatrixView later = window(m, 7, 5);  // rows 1 to 5 of the window
  later.data = static_cast<float*>(later.data) + later.row_stride;
  later.rows = 5;
  EXPECT_EQ(check(window(m, 0, 7), later), "");
  MatrixView backwards = window(m, 7, 5);
  backwards.data = static_cast<float*>(backwards.data) + 5 * backwards.row_stride;
  backwards.row_stride = -backwards.row_stride;
  EXPECT_EQ(check(window(m, 0, 7), backwards), "");
  EXPECT_NE(check(window(m, 4, 7), backwards), "");
  MatrixView transposed = window(m, 7, 5);
  std::swap(transposed.rows, transposed.cols);
  std::swap(transposed.row_stride, transposed.col_stride);
  EXPECT_EQ(check(window(m, 0, 7), transposed), "");
  EXPECT_NE(check(window(m, 0, 8), transposed), "");
  MatrixView one_row = window(m, 7, 5);  // of the third row
  one_row.data = static_cast<float*>(one_row.data) + 2 * one_row.row_stride;
  one_row.rows = 1;
  EXPECT_EQ(check(window(m, 0, 7), one_row), "");
  one_row.cols = 6;  // into the next row
  EXPECT_NE(check(window(m, 0, 7), one_row), "");
  MatrixView other_pitch = window(m, 7, 5);
  other_pitch.row_stride = 11;
  EXPECT_NE(check(window(m, 0, 7), other_pitch), "") << "they meet in a later row";
}

TEST(MatrixChecks, ResultsThatShareMemoryAreNamedBoth) {
  const OwnedMatrix m(6, 4, DataType::fp32);
  const std::string text = error_of([&] {
    check_no_overlap("op", {{"out[0]", part(m, 0, 2)}, {"out[1]", part(m, 1, 2)}}, {});
  });
  EXPECT_NE(text.find("out[0] overlaps out[1]"), std::string::npos) << text;
}

TEST(MatrixChecks, AResultIsRefusedForShapeDtypeStridesAndMemory) {
  const OwnedMatrix m(3, 4, DataType::fp32);
  const auto refusal = [&](MatrixView v) {
    return error_of([&] { check_result("op", {"out", v}, {.rows = 3, .cols = 4, .dtype = DataType::fp32}); });
  };
  EXPECT_EQ(refusal(m.view()), "");
  EXPECT_NE(refusal(part(m, 0, 2)).find("must be [3, 4]"), std::string::npos);
  MatrixView v = m.view();
  v.dtype = DataType::fp16;
  EXPECT_NE(refusal(v).find("must be fp32"), std::string::npos) << refusal(v);
  v = m.view();
  v.row_stride = 3;
  EXPECT_NE(refusal(v).find("strides are (3, 1)"), std::string::npos) << refusal(v);
  v = m.view();
  v.data = nullptr;
  EXPECT_NE(refusal(v).find("no memory"), std::string::npos) << refusal(v);
}

TEST(MatrixChecks, ARowListIsRefusedForItsLengthAndItsSigns) {
  const auto refusal = [&](const std::vector<int64_t>& counts) {
    return error_of([&] { check_row_counts("op", counts, 2); });
  };
  EXPECT_EQ(refusal({5, 0}), "");
  EXPECT_NE(refusal({5, 3, 1}).find("rows = [5, 3, 1]"), std::string::npos);
  EXPECT_NE(refusal({-5, 3}).find("negative"), std::string::npos);
}

TEST(MatrixChecks, AnOwnMatrixWithOtherRowsThanTheListSaysIsRefusedWithBoth) {
  const OwnedMatrix m(3, 4, DataType::fp32);
  const auto refusal = [&](const std::vector<int64_t>& counts) {
    return error_of([&] { check_own_rows("op", counts, Rank{1}, {"a", m.view()}); });
  };
  EXPECT_EQ(refusal({5, 3}), "");
  EXPECT_NE(refusal({3, 5}).find("rows[1] = 5, a is [3, 4]"), std::string::npos) << refusal({3, 5});
}

}  // namespace
}  // namespace tilewire

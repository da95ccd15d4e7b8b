#include "executor/matrix_copy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "testing/test_support.h"

namespace tilewire {
namespace {

TEST(MatrixCopy, ARowOfAnyStridesIsPacked) {
  OwnedMatrix m(3, 4, DataType::fp32);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 4; ++c) m.set(r, c, static_cast<double>(10 * r + c));
  }
  float row[4] = {};
  copy_row(m.view(), 2, reinterpret_cast<std::byte*>(row));
  EXPECT_EQ(std::vector<float>(row, row + 4), (std::vector<float>{20, 21, 22, 23}));
  copy_row(m.transposed(), 1, reinterpret_cast<std::byte*>(row));
  EXPECT_EQ(std::vector<float>(row, row + 3), (std::vector<float>{1, 11, 21}));
}

TEST(MatrixCopy, PackedRowsHaveZerosUpToThePitchAndNothingIsWrittenBesideThem) {
  OwnedMatrix m(4, 3, DataType::bf16);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 3; ++c) m.set(r, c, static_cast<double>(10 * r + c));
  }
  OwnedMatrix packed(4, 8, DataType::bf16);
  packed.fill(-1);
  pack_rows(m.view(), 1, 2, {.to = static_cast<std::byte*>(packed.view().data) + 16, .pitch_bytes = 16});
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 8; ++c) {
      const bool is_inside = r == 1 || r == 2;
      EXPECT_EQ(packed.get(r, c), !is_inside ? -1 : c < 3 ? static_cast<float>(10 * r + c) : 0) << r << " " << c;
    }
  }
}

TEST(MatrixCopy, RowsInSegmentsComeOutInOrder) {
  OwnedMatrix first(2, 4, DataType::fp32), second(1, 2, DataType::fp32), out(5, 2, DataType::fp32);
  first.fill(1);
  first.set(1, 0, 2);
  second.fill(3);
  out.fill(-1);
  const std::vector<RowSegment> segments = {{0, first.view().data, 16}, {2, second.view().data, 8}};
  copy_segments(segments, 3, out.view(), 1);
  std::vector<float> column;
  for (int64_t r = 0; r < 5; ++r) column.push_back(out.get(r, 0));
  EXPECT_EQ(column, (std::vector<float>{-1, 1, 2, 3, -1}));
}

TEST(MatrixCopy, NanIsFilledInEveryDtypeAndNotBesideTheView) {
  for (const DataType dtype : {DataType::bf16, DataType::fp16, DataType::fp32}) {
    OwnedMatrix m(2, 3, dtype);
    m.set(0, 2, 7);
    m.set(1, 2, 8);
    MatrixView left = m.view();
    left.cols = 2;
    fill_with_nan({left, MatrixView{nullptr, 5, 5, 5, 1, dtype}});
    for (int64_t r = 0; r < 2; ++r) {
      EXPECT_TRUE(std::isnan(m.get(r, 0)) && std::isnan(m.get(r, 1)));
      EXPECT_EQ(m.get(r, 2), static_cast<float>(7 + r)) << "the column beside the view";
    }
  }
}

}  // namespace
}  // namespace tilewire

#include "operands/weighted_matmul.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <functional>
#include <limits>

#include "testing/test_support.h"

namespace tilewire {
namespace {

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

class WeightedMatmul : public testing::Test {
 protected:
  WeightedMatmul() {
    o_.a = a_.view();
    o_.b = {b_.view(), c_.view()};
    o_.bias_dtype = DataType::bf16;
  }
  void expect_refusal(const std::string& text) const {
    const std::string said = refusal([&] { check_operands("toy", o_); });
    EXPECT_NE(said.find(text), std::string::npos) << said;
  }

  OwnedMatrix a_{2, 3, DataType::bf16}, b_{3, 4, DataType::bf16}, c_{3, 5, DataType::bf16};
  OwnedMatrix bias_{1, 5, DataType::bf16};
  MatmulOperands o_;
};

TEST_F(WeightedMatmul, OperandsThatDoNotFitEachOtherAreNamedWithTheirPlaceInTheList) {
  EXPECT_EQ(refusal([&] { check_operands("toy", o_); }), "accepted");
  o_.b[1].rows = 2;
  expect_refusal("b[1] does not fit a: a is [2, 3], b[1] is [2, 5]");
  o_.b[1] = c_.view();
  o_.b[0].dtype = DataType::fp16;
  expect_refusal("b[0] has another dtype than a");
  o_.b[0] = b_.view();
  o_.b[0].data = nullptr;
  expect_refusal("b[0] has no memory");
  o_.b[0] = b_.view();
  o_.bias = {nullptr};
  expect_refusal("1 biases, 2 weights");
  o_.a.rows = -1;
  expect_refusal("a has a negative size");
}

TEST_F(WeightedMatmul, ResultsAreCheckedOneAWeightAndKeepTheirNames) {
  OwnedMatrix first(7, 4, DataType::fp32), second(7, 5, DataType::fp32);
  const auto check = [&](const std::vector<MatrixView>& out) { return check_outs("toy", o_, out, 7, DataType::fp32); };
  EXPECT_EQ(check({first.view(), second.view()})[1].name, "out[1]");
  EXPECT_NE(refusal([&] { check({first.view()}); }).find("1 results, 2 weights"), std::string::npos);
  EXPECT_NE(refusal([&] {
              check({second.view(), first.view()});
            }).find("out[0] has the wrong shape"),
            std::string::npos);
}

TEST_F(WeightedMatmul, AllThatIsReadIsKnownByName) {
  o_.bias = {nullptr, bias_.view().data};
  std::vector<std::string> names;
  for (const NamedMatrix& m : read_matrices(o_)) names.push_back(m.name);
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b[0]", "b[1]", "bias[0]", "bias[1]"}));
  MatrixView result = bias_.view();
  EXPECT_NE(refusal([&] {
              check_no_overlap("toy", {{"out", result}}, read_matrices(o_));
            }).find("out overlaps bias[1]"),
            std::string::npos);
}

TEST_F(WeightedMatmul, SizesThatCannotBeAreNamed) {
  std::vector<int64_t> rows = {1, 2}, cols = {3};
  const auto check = [&](int64_t k) {
    return refusal([&] { check_sizes("toy", {.rows = rows, .k = k, .cols = cols, .element_bytes = 4}); });
  };
  EXPECT_EQ(check(5), "accepted");
  EXPECT_NE(check(-1).find("k = -1"), std::string::npos);
  EXPECT_NE(check(std::numeric_limits<int64_t>::max() / 8).find("*"), std::string::npos);
  rows[1] = -2;
  EXPECT_NE(check(5).find("rows[1] = -2"), std::string::npos);
  rows = {};
  EXPECT_NE(check(5).find("no ranks"), std::string::npos);
  rows = {1};
  cols = {-3};
  EXPECT_NE(check(5).find("n = -3"), std::string::npos);
  for (const size_t weights : {0, 9}) {
    cols.assign(weights, 1);
    EXPECT_NE(check(5).find(std::to_string(weights) + " weights"), std::string::npos);
  }
}

TEST_F(WeightedMatmul, ATileOfSomeColumnsHasTheirWeightBiasAndPlace) {
  a_.fill(2);
  c_.fill(3);
  for (int64_t i = 0; i < 5; ++i) bias_.set(0, i, static_cast<double>(i));
  o_.bias = {nullptr, bias_.view().data};
  OwnedMatrix out(4, 5, DataType::fp32);
  out.fill(-1);
  const RowSegment segment{0, a_.view().data, 3 * 2};
  const ColumnMap::Block columns{.weight = 1, .begin = 2, .end = 4, .is_gather_copy = false};
  HostGemmScratch scratch;
  HostGemmTile tile = weight_tile(o_, columns, {&segment, 1}, 2);
  add_bias(o_, columns, tile);
  write_into(out.view(), 1, columns.begin, tile);
  host_gemm_tile(tile, scratch);
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 5; ++c) {
      const bool is_inside = r >= 1 && r < 3 && c >= 2 && c < 4;
      EXPECT_EQ(out.get(r, c), is_inside ? 18 + static_cast<float>(c) : -1) << r << " " << c;
    }
  }
}

TEST(WeightedMatmulText, EvenAndUnevenRowsAndSeveralWeightsAreTold) {
  EXPECT_EQ(rows_text({5, 5}), "5 rows on each of 2 ranks");
  EXPECT_EQ(rows_text({5, 6}), "[5, 6] rows");
  EXPECT_EQ(cols_text({3, 4}, DataType::bf16), "N = 3+4 -> bf16");
  EXPECT_EQ(sum_of({3, 4}), 7);
}

}  // namespace
}  // namespace tilewire

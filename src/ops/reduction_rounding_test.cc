// Where the ops round that sum all ranks' products, and by how much: numbers that show each rounding, special values, and
// the bounds of the wire types (reduction/wire_types.h) against a sum in double. Built for each of these ops, which has
// ReductionOpTraits beside its fixture; by each of its forms, results are as good.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "testing/sanitized.h"
#include "testing/simulation_test_support.h"

#ifndef TILEWIRE_OP
#define TILEWIRE_OP gemm_rs::Op
#define TILEWIRE_OP_FIXTURE "ops/gemm_rs/call_fixture.h"
#endif
#include TILEWIRE_OP_FIXTURE

namespace tilewire {
namespace {

using Op = TILEWIRE_OP;
using Traits = ReductionOpTraits<Op>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct OneNumber {
  Layout layout;
  std::vector<double> partials;  // of each rank; as the input holds them
  DataType dtype = DataType::bf16;
  DataType wire = DataType::bf16;
  DataType out = DataType::fp32;
};

// What a rank makes of its a and b by one plan of the op.
void run_one(Session& session, const OwnedMatrix& a, const OwnedMatrix& b, OwnedMatrix& out, DataType wire,
             const std::string& plan_json) {
  Op::Arguments args;
  args.a = a.view();
  args.b = {b.view()};
  args.out_dtype = out.view().dtype;
  args.wire_dtype = wire;
  args.plan_json = plan_json;
  args.make_results = [&](const Op::Problem&) { return out.view(); };
  OpCalls<Op>(session).run(args);
}

// Every rank brings one column of its number, times one: a row for each rank, and all of them are the same sum. Every
// row that any rank gets, by any plan.
std::vector<float> sums_of(const OneNumber& of) {
  const int32_t ranks = ranks_of(of.layout);
  std::vector<std::vector<float>> sums(static_cast<size_t>(ranks));
  const auto outcomes = run_thread_cluster(of.layout, test_options(), [&](Session& session) {
    const auto me = static_cast<size_t>(session.rank().value);
    OwnedMatrix a(ranks, 1, of.dtype), b(1, 1, of.dtype);
    a.fill(of.partials[me]);
    b.fill(1);
    for (const std::string& plan : Traits::forms()) {
      OwnedMatrix out(Traits::part(session.rank(), ranks, 1).rows, 1, of.out);
      run_one(session, a, b, out, of.wire, plan);
      for (int64_t row = 0; row < out.view().rows; ++row) sums[me].push_back(out.get(row, 0));
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
  std::vector<float> all;
  for (const std::vector<float>& of_rank : sums) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return all;
}

std::vector<float> everywhere(const Layout& layout, float value) {
  const int32_t ranks = ranks_of(layout);
  size_t rows = 0;
  for (int32_t r = 0; r < ranks; ++r) rows += static_cast<size_t>(Traits::part(Rank{r}, ranks, 1).rows);
  return std::vector<float>(rows * Traits::forms().size(), value);
}

const std::vector<Layout>& layouts_of_eight() {
  static const std::vector<Layout> kLayouts = {{8}, {4, 4}, {2, 2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}};
  return kLayouts;
}

TEST(ReductionRounding, OneLargePartialSumAndSevenSmallOnesAreNotLostOverAWideWire) {
  for (const Layout& layout : part_if_sanitized(layouts_of_eight())) {
    for (size_t large = 0; large < 8; large += 3) {
      std::vector<double> partials(8, 1);
      partials[large] = 256;
      const auto over_fp32 = [&](DataType out) {
        return sums_of({layout, partials, DataType::bf16, DataType::fp32, out});
      };
      EXPECT_EQ(over_fp32(DataType::fp32), everywhere(layout, 263)) << testing::PrintToString(layout);
      EXPECT_EQ(over_fp32(DataType::bf16), everywhere(layout, 264)) << testing::PrintToString(layout);
    }
  }
}

// bf16 numbers from 256 on are two apart, and ties go to the even one: 257 becomes 256, 259 becomes 260.
TEST(ReductionRounding, OneLargePartialSumAndSevenSmallOnesAreWhatTheListedRoundingsGiveOverBf16) {
  const std::vector<double> partials = {256, 1, 1, 1, 1, 1, 1, 1};
  const std::vector<float> expected = {263, 260 + 4, 256 + 6, 263};
  for (size_t i = 0; i < expected.size(); ++i) {
    const Layout& layout = layouts_of_eight()[i];
    EXPECT_EQ(sums_of({layout, partials}), everywhere(layout, expected[i])) << testing::PrintToString(layout);
    EXPECT_EQ(reduced(layout, partials, wire_types(DataType::bf16)), expected[i]);
  }
}

TEST(ReductionRounding, Fp16PartialSumsThatCancelAreZeroInEveryOrderAndOverNodes) {
  std::vector<double> partials = {-40000, -40000, 40000, 40000};
  do {
    for (const Layout& layout : {Layout{4}, Layout{2, 2}}) {
      EXPECT_EQ(sums_of({layout, partials, DataType::fp16, DataType::fp16}), everywhere(layout, 0))
          << testing::PrintToString(layout) << testing::PrintToString(partials);
    }
  } while (std::next_permutation(partials.begin(), partials.end()));
}

TEST(ReductionRounding, APartialSumTooLargeForFp16IsInfiniteOverFp16AndRightOverFp32) {
  const std::vector<double> partials = {70000, -69000, 5, 6};
  EXPECT_TRUE(std::isnan(sums_of({{2, 2}, partials, DataType::fp32, DataType::fp16})[0]));
  EXPECT_EQ(sums_of({{2, 2}, partials, DataType::fp32, DataType::fp32}), everywhere({2, 2}, 1011));
}

TEST(ReductionRounding, InfinitiesNaNsAndNegativeZerosPassThrough) {
  for (const DataType wire : {DataType::bf16, DataType::fp16, DataType::fp32}) {
    for (const Layout& layout : part_if_sanitized<Layout>({{4}, {2, 2}, {1, 1, 2}})) {
      EXPECT_EQ(sums_of({layout, {1, kInfinity, 3, 4}, DataType::fp32, wire}), everywhere(layout, kInfinity));
      for (const float sum : sums_of({layout, {kInfinity, 2, 3, -kInfinity}, DataType::fp32, wire})) {
        EXPECT_TRUE(std::isnan(sum));
      }
      for (const float sum : sums_of({layout, {1, 2, NAN, 4}, DataType::fp32, wire})) EXPECT_TRUE(std::isnan(sum));
      EXPECT_EQ(sums_of({layout, {0, 0, 0, 0}, DataType::fp32, wire}), everywhere(layout, 0));
    }
  }
  // Numbers below the smallest normal one of the wire are numbers.
  for (const Layout& layout : {Layout{4}, Layout{2, 2}}) {
    EXPECT_EQ(sums_of({layout, std::vector<double>(4, -0x1p-24), DataType::fp32, DataType::fp16}),
              everywhere(layout, -0x1p-22F));
    EXPECT_EQ(sums_of({layout, std::vector<double>(4, -0x1p-132), DataType::fp32, DataType::bf16}),
              everywhere(layout, -0x1p-130F));
  }
  // A product that is too small for the wire is a zero of its sign there.
  for (const Layout& layout : {Layout{4}, Layout{2, 2}}) {
    for (const float sum : sums_of({layout, {-1e-9, -1e-9, -1e-9, -1e-9}, DataType::fp32, DataType::fp16})) {
      EXPECT_TRUE(sum == 0 && std::signbit(sum));
    }
  }
}

// ---- bounds ---------------------------------------------------------------------------------------------------------

double unit_roundoff(DataType type) {
  return type == DataType::bf16 ? 0x1p-8 : type == DataType::fp16 ? 0x1p-11 : 0x1p-24;
}

struct Deviation {
  double worst = 0;        // error over what is allowed
  double worst_error = 0;  // over the sum of the magnitudes, in units of the wire's roundoff
};

// How far the results of a call on normal numbers are from the sums in double, each against its bound:
//   sum over ranks of |partial| * u(partial), sum over nodes of |node sum| * u(node sum), |result| * u(result),
// and what fp32 adds up to: gamma over K + R + 2 terms of the sum of all |a| |b|.
Deviation deviation_of(const Layout& layout, DataType wire, DataType out_dtype, const std::string& plan_json) {
  const int32_t ranks = ranks_of(layout);
  constexpr int64_t kDepth = 40, kCols = 17, kRows = 11;
  const int64_t total = kRows * ranks;
  std::vector<OwnedMatrix> a, b, out(static_cast<size_t>(ranks));
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  const auto draw = [&](int64_t, int64_t) { return normal(random); };
  for (int32_t r = 0; r < ranks; ++r) {
    a.push_back(matrix_of(total, kDepth, DataType::fp32, draw));
    b.push_back(matrix_of(kDepth, kCols, DataType::fp32, draw));
    out[static_cast<size_t>(r)] = OwnedMatrix(Traits::part(Rank{r}, ranks, kRows).rows, kCols, out_dtype);
  }
  const auto outcomes = run_thread_cluster(layout, test_options(), [&](Session& session) {
    const auto me = static_cast<size_t>(session.rank().value);
    run_one(session, a[me], b[me], out[me], wire, plan_json);
  });
  EXPECT_EQ(first_error(outcomes), "");
  const WireTypes types = wire_types(wire);
  const bool has_nodes = layout.size() > 1;
  const double in_fp32 = (kDepth + ranks + 2) * 0x1p-24;
  Deviation deviation;
  for (int64_t row = 0; row < total; ++row) {
    for (int64_t col = 0; col < kCols; ++col) {
      double sum = 0, magnitude = 0, partials = 0, nodes = 0;
      size_t rank = 0;
      for (const int32_t width : layout) {
        double node = 0;
        for (int32_t l = 0; l < width; ++l, ++rank) {
          double partial = 0;
          for (int64_t i = 0; i < kDepth; ++i) {
            const double product = double{a[rank].get(row, i)} * b[rank].get(i, col);
            partial += product;
            magnitude += std::abs(product);
          }
          node += partial;
          partials += std::abs(partial);
        }
        nodes += std::abs(node);
        sum += node;
      }
      const double u = unit_roundoff(types.partial), v = has_nodes ? unit_roundoff(types.node_sum) : 0;
      double allowed = partials * u + (nodes + partials * u) * v + magnitude * in_fp32 * (1 + u) * (1 + v);
      allowed += (std::abs(sum) + allowed) * unit_roundoff(out_dtype);
      for (int32_t r = 0; r < ranks; ++r) {
        const ReductionTestPart part = Traits::part(Rank{r}, ranks, kRows);
        if (row < part.first_row || row >= part.first_row + part.rows) continue;
        const double error = std::abs(out[static_cast<size_t>(r)].get(row - part.first_row, col) - sum);
        deviation.worst = std::max(deviation.worst, error / allowed);
        deviation.worst_error = std::max(deviation.worst_error, error / (partials * u));
      }
    }
  }
  return deviation;
}

TEST(ReductionRounding, EveryResultIsWithinTheBoundOfItsRoundings) {
  for (const Layout& layout : part_if_sanitized<Layout>({{1}, {4}, {2, 2}, {1, 1, 2}})) {
    for (const DataType wire : {DataType::bf16, DataType::fp16, DataType::fp32}) {
      for (const DataType out : {DataType::bf16, DataType::fp16, DataType::fp32}) {
        for (const std::string& plan : Traits::forms()) {
          const Deviation seen = deviation_of(layout, wire, out, plan);
          EXPECT_LE(seen.worst, 1) << testing::PrintToString(layout) << " over " << to_string(wire) << " to "
                                   << to_string(out) << " by " << plan;
          // The bound is not so wide that it would hold whatever happens; rounding to 8 or 11 bits comes close to it.
          EXPECT_GT(seen.worst, wire == DataType::fp32 ? 0 : 0.2);
        }
      }
    }
  }
}

// A wire of more bits than the listed ones, or one that is not used, would show.
TEST(ReductionRounding, EachWireHasTheErrorOfItsBitsAndNoLess) {
  for (const Layout& layout : {Layout{4}, Layout{2, 2}}) {
    for (const DataType wire : {DataType::bf16, DataType::fp16}) {
      const double error = deviation_of(layout, wire, DataType::fp32, Traits::forms()[0]).worst_error;
      EXPECT_GT(error, 0.2) << to_string(wire);
      EXPECT_LE(error, layout.size() > 1 && wire == DataType::bf16 ? 2.1 : 1.1) << to_string(wire);
    }
  }
}

}  // namespace
}  // namespace tilewire

#include "arithmetic/host_gemm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "arithmetic/host_number.h"
#include <tilewire/error.h>

namespace tilewire {
namespace {

enum class Layout { kn, nk, strided };  // of b

std::vector<HostGemmVariant> available_variants() {
  std::vector<HostGemmVariant> variants;
  for (auto variant : {HostGemmVariant::generic, HostGemmVariant::avx2, HostGemmVariant::avx512}) {
    if (host_gemm_variant_is_available(variant)) variants.push_back(variant);
  }
  return variants;
}

struct Shape {
  int64_t rows;
  int64_t cols;
  int64_t k;
};
struct Types {
  DataType a = DataType::bf16;
  DataType b = DataType::bf16;
  DataType bias = DataType::bf16;
  DataType out = DataType::bf16;
};

// Memory that ends where its contents end, so that ASan sees a read or write past it.
std::vector<std::byte> stored(const std::vector<float>& values, DataType type) {
  std::vector<std::byte> memory(values.size() * static_cast<size_t>(size_bytes(type)));
  from_fp32(values.data(), static_cast<int64_t>(values.size()), {memory.data(), type});
  return memory;
}

float load(const void* memory, DataType type, int64_t index) {
  float value;
  to_fp32({static_cast<const std::byte*>(memory) + index * size_bytes(type), type}, 1, &value);
  return value;
}

// A whole product with everything that a tile of it needs.
class Case {
 public:
  Case(Shape shape, Types types, Layout layout, bool has_bias = true) : shape_(shape), types_(types) {
    std::mt19937 random(static_cast<uint32_t>(shape.rows * 31 + shape.cols * 7 + shape.k));
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto draw = [&](int64_t count) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = uniform(random);
      return values;
    };
    a_ = stored(draw(shape.rows * shape.k), types.a);
    if (has_bias) bias_ = stored(draw(shape.cols), types.bias);
    stride_k_ = layout == Layout::kn ? shape.cols : layout == Layout::nk ? 1 : 2 * shape.cols;
    stride_n_ = layout == Layout::kn ? 1 : layout == Layout::nk ? shape.k : 2;
    b_ = stored(draw(shape.k * shape.cols * (layout == Layout::strided ? 2 : 1)), types.b);
  }

  HostGemmTile whole() const {
    HostGemmTile tile{.rows = shape_.rows, .cols = shape_.cols, .k = shape_.k, .a = {}};
    tile.a_type = types_.a;
    tile.b = b_.data();
    tile.b_stride_k = stride_k_;
    tile.b_stride_n = stride_n_;
    tile.b_type = types_.b;
    tile.bias = bias_.empty() ? nullptr : bias_.data();
    tile.bias_type = types_.bias;
    tile.out_pitch_bytes = shape_.cols * size_bytes(types_.out);
    tile.out_type = types_.out;
    return tile;
  }

  // The part at (row, col) of the product, written to `out` [part.rows, part.cols].
  void compute(int64_t row, int64_t col, Shape part, std::byte* out, HostGemmScratch& scratch) const {
    const int64_t pitch_bytes = shape_.k * size_bytes(types_.a);
    const RowSegment segment{0, a_.data() + row * pitch_bytes, pitch_bytes};
    HostGemmTile tile = whole();
    tile.rows = part.rows;
    tile.cols = part.cols;
    tile.a = {&segment, 1};
    tile.b = b_.data() + col * stride_n_ * size_bytes(types_.b);
    if (!bias_.empty()) tile.bias = bias_.data() + col * size_bytes(types_.bias);
    tile.out = out;
    tile.out_pitch_bytes = part.cols * size_bytes(types_.out);
    host_gemm_tile(tile, scratch);
  }

  std::vector<std::byte> compute_whole(HostGemmScratch& scratch) const {
    std::vector<std::byte> out(static_cast<size_t>(shape_.rows * shape_.cols * size_bytes(types_.out)));
    compute(0, 0, shape_, out.data(), scratch);
    return out;
  }

  double exact(int64_t row, int64_t col) const {
    double sum = bias_.empty() ? 0.0 : load(bias_.data(), types_.bias, col);
    for (int64_t i = 0; i < shape_.k; ++i) {
      sum += double{load(a_.data(), types_.a, row * shape_.k + i)} *
             load(b_.data(), types_.b, i * stride_k_ + col * stride_n_);
    }
    return sum;
  }

  // The worst error allowed: half a unit of the output's last place, and the roundings of an fp32 sum of k terms
  // below 1.
  double tolerance(double value) const {
    const double last_place = types_.out == DataType::bf16 ? 0x1p-8 : types_.out == DataType::fp16 ? 0x1p-11 : 0x1p-24;
    return std::abs(value) * last_place * 1.001 + 0x1p-24 * (4.0 + static_cast<double>(shape_.k));
  }

  void expect_right(const std::vector<std::byte>& out, const std::string& where) const {
    for (int64_t row = 0; row < shape_.rows; ++row) {
      for (int64_t col = 0; col < shape_.cols; ++col) {
        const double expected = exact(row, col);
        const double got = load(out.data(), types_.out, row * shape_.cols + col);
        ASSERT_LE(std::abs(got - expected), tolerance(expected))
            << where << " element (" << row << ", " << col << ") of " << shape_.rows << " x " << shape_.cols << " x "
            << shape_.k << ": " << got << ", exact " << expected;
      }
    }
  }

  const std::byte* a() const { return a_.data(); }
  void set_a(int64_t row, int64_t i, float value) {
    from_fp32(&value, 1, {a_.data() + (row * shape_.k + i) * size_bytes(types_.a), types_.a});
  }

 private:
  Shape shape_;
  Types types_;
  int64_t stride_k_ = 0;
  int64_t stride_n_ = 0;
  std::vector<std::byte> a_;
  std::vector<std::byte> b_;
  std::vector<std::byte> bias_;
};

class HostGemm : public testing::TestWithParam<HostGemmVariant> {
 protected:
  HostGemmScratch scratch_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Variants, HostGemm, testing::ValuesIn(available_variants()),
                         [](const auto& test) { return to_string(test.param); });

TEST_P(HostGemm, EveryTypeAndLayoutGivesTheProduct) {
  constexpr DataType kAll[] = {DataType::bf16, DataType::fp16, DataType::fp32};
  for (Layout layout : {Layout::kn, Layout::nk, Layout::strided}) {
    for (DataType in : kAll) {
      for (DataType out : kAll) {
        const Types types{in, in, out, out};
        const Case c({9, 51, 37}, types, layout);
        c.expect_right(c.compute_whole(scratch_), std::string(to_string(in)) + " to " + to_string(out));
      }
    }
    const Case mixed({6, 50, 20}, {DataType::fp32, DataType::bf16, DataType::fp16, DataType::bf16}, layout);
    mixed.expect_right(mixed.compute_whole(scratch_), "mixed types");
  }
}

TEST_P(HostGemm, RaggedEdgesOfRowsColumnsAndK) {
  for (Layout layout : {Layout::kn, Layout::nk}) {
    for (const Shape& shape : {Shape{1, 1, 1}, Shape{1, 300, 5}, Shape{133, 1, 8}, Shape{3, 7, 257}, Shape{5, 49, 513},
                               Shape{4, 24, 256}, Shape{131, 290, 3}}) {
      const Case c(shape, {}, layout);
      c.expect_right(c.compute_whole(scratch_), "ragged");
    }
  }
}

// The promise on which fused, unfused and differently tiled calls agree.
TEST_P(HostGemm, BitsDoNotDependOnHowTheProductIsCutIntoTiles) {
  for (const int64_t k : {2, 37, 300, 700}) {
    for (Layout layout : {Layout::kn, Layout::nk, Layout::strided}) {
      const Case c({45, 99, k}, {DataType::bf16, DataType::bf16, DataType::bf16, DataType::fp32}, layout);
      const std::vector<std::byte> whole = c.compute_whole(scratch_);
      for (const Shape& tile : {Shape{1, 1, 0}, Shape{45, 1, 0}, Shape{1, 99, 0}, Shape{4, 24, 0}, Shape{7, 13, 0},
                                Shape{16, 64, 0}, Shape{40, 97, 0}}) {
        for (int64_t row = 0; row < 45; row += tile.rows) {
          // Single elements take long: some columns will do.
          for (int64_t col = 0; col < 99; col += tile.cols == 1 ? 7 : tile.cols) {
            const Shape part{std::min(tile.rows, 45 - row), std::min(tile.cols, 99 - col), k};
            std::vector<std::byte> out(static_cast<size_t>(part.rows * part.cols * 4));
            c.compute(row, col, part, out.data(), scratch_);
            for (int64_t r = 0; r < part.rows; ++r) {
              ASSERT_EQ(std::memcmp(out.data() + r * part.cols * 4, whole.data() + ((row + r) * 99 + col) * 4,
                                    static_cast<size_t>(part.cols * 4)),
                        0)
                  << "k = " << k << ", tile " << part.rows << " x " << part.cols << " at (" << row + r << ", " << col
                  << ")";
            }
          }
        }
      }
    }
  }
}

TEST_P(HostGemm, BitsDoNotDependOnTheThreadNorOnWhatWasComputedBefore) {
  const Case c({20, 60, 600}, {}, Layout::kn);
  const Case other({77, 123, 91}, {}, Layout::nk);
  const std::vector<std::byte> first = c.compute_whole(scratch_);
  other.compute_whole(scratch_);
  EXPECT_EQ(c.compute_whole(scratch_), first);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      HostGemmScratch scratch(GetParam());
      for (int round = 0; round < 3; ++round) EXPECT_EQ(c.compute_whole(scratch), first);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(HostGemm, RowsFromTwoMemoryAreasAreThoseOfOne) {
  const Case c({20, 30, 65}, {}, Layout::kn, false);
  const std::vector<std::byte> expected = c.compute_whole(scratch_);
  const int64_t row_bytes = 65 * 2;
  // Rows 0..6 where they are, 7..12 with gaps between them, 13..19 in memory of their own.
  std::vector<std::byte> spread(static_cast<size_t>(6 * (row_bytes + 34)));
  for (int64_t i = 0; i < 6; ++i) std::memcpy(spread.data() + i * (row_bytes + 34), c.a() + (7 + i) * row_bytes, 130);
  const std::vector<std::byte> tail(c.a() + 13 * row_bytes, c.a() + 20 * row_bytes);
  const std::vector<RowSegment> segments = {
      {0, c.a(), row_bytes}, {7, spread.data(), row_bytes + 34}, {13, tail.data(), row_bytes}};
  std::vector<std::byte> out(20 * 30 * 2);
  HostGemmTile tile = c.whole();
  tile.a = segments;
  tile.out = out.data();
  host_gemm_tile(tile, scratch_);
  EXPECT_EQ(out, expected);
}

TEST_P(HostGemm, WritesNothingBesideTheTile) {
  const Case c({5, 27, 40}, {}, Layout::kn);
  constexpr int64_t kPitch = 27 * 2 + 10;
  std::vector<std::byte> out(5 * kPitch, std::byte{0x5a});
  const RowSegment rows{0, c.a(), 80};
  HostGemmTile tile = c.whole();
  tile.a = {&rows, 1};
  tile.out = out.data();
  tile.out_pitch_bytes = kPitch;
  host_gemm_tile(tile, scratch_);
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t i = 54; i < kPitch; ++i) ASSERT_EQ(out[static_cast<size_t>(row * kPitch + i)], std::byte{0x5a}) << row;
  }
}

TEST_P(HostGemm, WithoutKTheOutputIsTheBiasOrZero) {
  const std::vector<float> bias = {1.5f, -2.0f, 0.25f};
  std::vector<float> out(6, 99.0f);
  HostGemmTile tile{.rows = 2, .cols = 3, .k = 0, .a = {}};
  tile.out = out.data();
  tile.out_pitch_bytes = 12;
  tile.out_type = DataType::fp32;
  host_gemm_tile(tile, scratch_);
  EXPECT_EQ(out, std::vector<float>(6, 0.0f));
  tile.bias = bias.data();
  tile.bias_type = DataType::fp32;
  host_gemm_tile(tile, scratch_);
  EXPECT_EQ(out, (std::vector<float>{1.5f, -2.0f, 0.25f, 1.5f, -2.0f, 0.25f}));
}

TEST_P(HostGemm, EmptyTilesTouchNothing) {
  std::vector<float> out(25, 7.0f);
  const std::vector<float> in(25, 1.0f);
  const RowSegment rows{0, in.data(), 20};
  HostGemmTile tile{.rows = 0, .cols = 5, .k = 5, .a = {&rows, 1}};
  tile.a_type = tile.b_type = tile.out_type = DataType::fp32;
  tile.b = in.data();
  tile.b_stride_k = 5;
  tile.out = out.data();
  tile.out_pitch_bytes = 20;
  host_gemm_tile(tile, scratch_);
  tile.rows = 5;
  tile.cols = 0;
  host_gemm_tile(tile, scratch_);
  EXPECT_EQ(out, std::vector<float>(25, 7.0f));
}

// A NaN in one row of a must not leak into the others through the padding, and must not be lost.
TEST_P(HostGemm, NaNsAndInfinitiesStayInTheirRow) {
  Case c({6, 30, 40}, {}, Layout::kn);
  c.set_a(2, 7, std::nanf(""));
  c.set_a(4, 0, HUGE_VALF);
  const std::vector<std::byte> out = c.compute_whole(scratch_);
  for (int64_t row = 0; row < 6; ++row) {
    for (int64_t col = 0; col < 30; ++col) {
      const float value = load(out.data(), DataType::bf16, row * 30 + col);
      EXPECT_EQ(std::isnan(value), row == 2) << row << ", " << col;
      EXPECT_EQ(std::isinf(value), row == 4) << row << ", " << col;
    }
  }
}

TEST_P(HostGemm, RefusesTilesThatCannotBe) {
  const float memory[4] = {};
  float out[4];
  const RowSegment rows[] = {{0, memory, 4}, {0, memory, 4}};
  HostGemmTile good{.rows = 1, .cols = 1, .k = 1, .a = {rows, 1}};
  good.b = memory;
  good.out = out;
  good.out_pitch_bytes = 4;
  host_gemm_tile(good, scratch_);
  const auto refused = [&](const std::function<void(HostGemmTile&)>& spoil) {
    HostGemmTile tile = good;
    spoil(tile);
    EXPECT_THROW(host_gemm_tile(tile, scratch_), Error);
  };
  refused([](HostGemmTile& t) { t.rows = -1; });
  refused([](HostGemmTile& t) { t.cols = -1; });
  refused([](HostGemmTile& t) { t.k = -1; });
  refused([](HostGemmTile& t) { t.a = {}; });
  refused([&](HostGemmTile& t) { t.a = {rows, 2}; });
  refused([](HostGemmTile& t) { t.b = nullptr; });
  refused([](HostGemmTile& t) { t.out = nullptr; });
}

TEST(HostGemmVariants, ChoosesTheFastestAndRefusesWhatIsNotHere) {
  EXPECT_TRUE(host_gemm_variant_is_available(HostGemmVariant::generic));
  EXPECT_EQ(host_gemm_variant("generic"), HostGemmVariant::generic);
  EXPECT_EQ(host_gemm_variant(), available_variants().back());
  EXPECT_THROW(host_gemm_variant("fast"), Error);
  for (auto variant : {HostGemmVariant::avx2, HostGemmVariant::avx512}) {
    if (host_gemm_variant_is_available(variant)) continue;
    try {
      host_gemm_variant(to_string(variant));
      ADD_FAILURE() << to_string(variant) << " is not available and was given";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    }
    EXPECT_THROW(HostGemmScratch{variant}, Error);
  }
}

}  // namespace
}  // namespace tilewire

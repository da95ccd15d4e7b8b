#include "arithmetic/host_number.h"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace tilewire {
namespace {

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

// Obvious and slow: the value from the fields of the format.
double value_of_fields(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int exponent = static_cast<int>((bits >> mantissa_bits) & ((1u << exponent_bits) - 1));
  const double sign = ((bits >> (exponent_bits + mantissa_bits)) & 1) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

template <class EigenType>
uint16_t eigen_bits(float value) {
  return Eigen::numext::bit_cast<uint16_t>(EigenType(value));
}

std::vector<uint16_t> all_patterns() {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  return patterns;
}

struct Format {
  DataType type;
  int exponent_bits;
  int mantissa_bits;
  uint16_t quiet_bit;
  float (*widen)(uint16_t);
  uint16_t (*round)(float);
  uint16_t (*eigen_round)(float);
};

class HostNumber : public testing::TestWithParam<Format> {};

INSTANTIATE_TEST_SUITE_P(
    Formats, HostNumber,
    testing::Values(Format{DataType::bf16, 8, 7, 0x0040, bf16_to_fp32, fp32_to_bf16, eigen_bits<Eigen::bfloat16>},
                    Format{DataType::fp16, 5, 10, 0x0200, fp16_to_fp32, fp32_to_fp16, eigen_bits<Eigen::half>}),
    [](const auto& test) { return to_string(test.param.type); });

TEST_P(HostNumber, EveryPatternWidensToTheValueOfItsFields) {
  const Format& f = GetParam();
  const std::vector<uint16_t> in = all_patterns();
  std::vector<float> out(in.size());
  to_fp32({in.data(), f.type}, 65536, out.data());
  for (uint16_t bits : in) {
    const double expected = value_of_fields(bits, f.exponent_bits, f.mantissa_bits);
    ASSERT_EQ(bits_of(out[bits]), bits_of(f.widen(bits))) << bits;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(out[bits])) << bits;
      ASSERT_NE(bits_of(out[bits]) & 0x00400000, 0u) << "signalling NaN from " << bits;
    } else {
      ASSERT_EQ(bits_of(out[bits]), bits_of(static_cast<float>(expected))) << bits;
    }
  }
}

TEST_P(HostNumber, EveryPatternComesBackFromFp32) {
  const Format& f = GetParam();
  const std::vector<uint16_t> in = all_patterns();
  std::vector<float> wide(in.size());
  std::vector<uint16_t> back(in.size());
  to_fp32({in.data(), f.type}, 65536, wide.data());
  from_fp32(wide.data(), 65536, {back.data(), f.type});
  for (uint16_t bits : in) {
    const bool is_nan = std::isnan(value_of_fields(bits, f.exponent_bits, f.mantissa_bits));
    ASSERT_EQ(back[bits], is_nan ? bits | f.quiet_bit : bits) << bits;
  }
}

// All that rounding can get wrong lies at and beside the middle between two neighbours.
TEST_P(HostNumber, RoundsToTheNearestAndTiesToEven) {
  const Format& f = GetParam();
  const uint16_t infinity = static_cast<uint16_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
  for (uint16_t bits = 0; bits < infinity; ++bits) {
    const double low = value_of_fields(bits, f.exponent_bits, f.mantissa_bits);
    double high = value_of_fields(bits + 1u, f.exponent_bits, f.mantissa_bits);
    if (std::isinf(high)) high = 2 * low - value_of_fields(bits - 1u, f.exponent_bits, f.mantissa_bits);
    const float middle = static_cast<float>((low + high) / 2);
    const uint16_t even = bits % 2 == 0 ? bits : bits + 1;
    for (uint32_t sign : {0u, 0x8000u}) {
      const float m = sign != 0 ? -middle : middle;
      ASSERT_EQ(f.round(m), even | sign) << bits;
      ASSERT_EQ(f.round(float_of(bits_of(m) - 1)), bits | sign) << bits;
      ASSERT_EQ(f.round(float_of(bits_of(m) + 1)), (bits + 1) | sign) << bits;
    }
  }
}

TEST_P(HostNumber, KeepsSignsInfinitiesAndNaNs) {
  const Format& f = GetParam();
  const uint16_t infinity = static_cast<uint16_t>(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
  EXPECT_EQ(f.round(0.0f), 0);
  EXPECT_EQ(f.round(-0.0f), 0x8000);
  EXPECT_EQ(f.round(HUGE_VALF), infinity);
  EXPECT_EQ(f.round(-HUGE_VALF), infinity | 0x8000);
  EXPECT_EQ(f.round(std::numeric_limits<float>::max()), infinity);
  EXPECT_EQ(f.round(std::numeric_limits<float>::denorm_min()), 0);
  // A NaN whose payload lies only in the bits that are cut off must not become an infinity, nor carry into the sign.
  for (uint32_t nan : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u}) {
    const uint16_t bits = f.round(float_of(nan));
    EXPECT_TRUE(std::isnan(f.widen(bits))) << std::hex << nan;
    EXPECT_NE(bits & f.quiet_bit, 0) << std::hex << nan;
    EXPECT_EQ(bits >> 15, nan >> 31) << std::hex << nan;
  }
}

TEST_P(HostNumber, AgreesWithEigenOnRandomBits) {
  const Format& f = GetParam();
  std::mt19937 random(7);
  std::vector<float> in(1 << 18);
  for (float& value : in) value = float_of(static_cast<uint32_t>(random()));
  std::vector<uint16_t> out(in.size());
  from_fp32(in.data(), static_cast<int64_t>(in.size()), {out.data(), f.type});
  for (size_t i = 0; i < in.size(); ++i) {
    ASSERT_EQ(out[i], f.round(in[i])) << in[i];
    if (std::isnan(in[i])) continue;
    ASSERT_EQ(out[i], f.eigen_round(in[i])) << in[i];
  }
}

TEST_P(HostNumber, StridedElementsLeaveTheirNeighboursAlone) {
  const Format& f = GetParam();
  std::vector<uint16_t> in(300, 0xdead);
  for (int i = 0; i < 100; ++i) in[static_cast<size_t>(3 * i)] = f.round(static_cast<float>(i));
  std::vector<float> wide(100);
  to_fp32({in.data(), f.type, 3}, 100, wide.data());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(wide[static_cast<size_t>(i)], static_cast<float>(i));
  to_fp32({in.data() + 297, f.type, -3}, 100, wide.data());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(wide[static_cast<size_t>(i)], static_cast<float>(99 - i));

  std::vector<uint16_t> out(300, 0xdead);
  from_fp32(wide.data(), 100, {out.data(), f.type, 3});
  for (size_t i = 0; i < 300; ++i) {
    ASSERT_EQ(out[i], i % 3 != 0 ? 0xdead : f.round(static_cast<float>(99 - i / 3))) << i;
  }
}

TEST(HostNumberFp32, CopiesBitsAndQuietsNaNs) {
  const float in[] = {-0.0f, float_of(1), float_of(0x7f800001), -HUGE_VALF};
  float out[4];
  to_fp32({in, DataType::fp32}, 4, out);
  EXPECT_EQ(bits_of(out[0]), 0x80000000u);
  EXPECT_EQ(bits_of(out[1]), 1u);
  EXPECT_EQ(bits_of(out[2]), 0x7fc00001u);
  EXPECT_EQ(bits_of(out[3]), 0xff800000u);
  float back[8] = {};
  from_fp32(in, 4, {back, DataType::fp32, 2});
  EXPECT_EQ(bits_of(back[4]), 0x7fc00001u);
  EXPECT_EQ(back[5], 0.0f);
}

}  // namespace
}  // namespace tilewire

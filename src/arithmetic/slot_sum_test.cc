#include "arithmetic/slot_sum.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <cmath>
#include <limits>
#include <vector>

#include "testing/test_support.h"

namespace tilewire {
namespace {

// One row of one element a slot.
float sum_of_slots(const std::vector<float>& values, DataType type) {
  std::vector<OwnedMatrix> slots;
  std::vector<SlotRows> rows;
  for (const float value : values) {
    slots.emplace_back(1, 1, type).set(0, 0, value);
    rows.push_back({slots.back().bytes().data(), size_bytes(type), type});
  }
  float sum = 0;
  SlotSum().add_up(rows, 0, {&sum, 1});
  return sum;
}

TEST(SlotSum, SlotsAreAddedFromTheLeftInFp32) {
  EXPECT_EQ(sum_of_slots({0x1p24f, 1, 1}, DataType::fp32), 0x1p24f);
  EXPECT_EQ(sum_of_slots({1, 1, 0x1p24f}, DataType::fp32), 0x1p24f + 2);
  EXPECT_EQ(sum_of_slots({40000, 40000, -40000, -40000}, DataType::fp16), 0);
  EXPECT_EQ(sum_of_slots({40000, -40000, 40000, 40000}, DataType::fp16), 80000);
}

TEST(SlotSum, SpecialValuesPassThrough) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DataType type : {DataType::bf16, DataType::fp16, DataType::fp32}) {
    EXPECT_TRUE(std::signbit(sum_of_slots({-0.0f}, type))) << to_string(type);
    EXPECT_TRUE(std::signbit(sum_of_slots({-0.0f, -0.0f}, type))) << to_string(type);
    EXPECT_FALSE(std::signbit(sum_of_slots({-0.0f, 0.0f}, type))) << to_string(type);
    EXPECT_EQ(sum_of_slots({infinity, 1}, type), infinity) << to_string(type);
    EXPECT_TRUE(std::isnan(sum_of_slots({infinity, -infinity}, type))) << to_string(type);
    EXPECT_TRUE(std::isnan(sum_of_slots({1, std::nanf("")}, type))) << to_string(type);
  }
}

TEST(SlotSum, EachRowIsFoundByThePitchAndOnlyItsColumnsAreTouched) {
  OwnedMatrix one(3, 5, DataType::bf16), two(3, 5, DataType::fp32);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 5; ++c) {
      one.set(r, c, static_cast<double>(10 * r + c));
      two.set(r, c, static_cast<double>(100 * r));
    }
  }
  const std::vector<SlotRows> slots = {{one.bytes().data(), 10, DataType::bf16},
                                       {two.bytes().data(), 20, DataType::fp32}};
  std::vector<float> sum(5, -1);
  SlotSum().add_up(slots, 2, std::span(sum).first(4));
  EXPECT_EQ(sum, (std::vector<float>{220, 221, 222, 223, -1}));
}

TEST(SlotSum, RoundingIsThatOfTheType) {
  std::vector<float> sum = {257, 70000, -1e-30f};
  SlotSum().round(DataType::bf16, sum);
  EXPECT_EQ(sum[0], 256);
  sum = {257, 70000, -1e-30f};
  SlotSum().round(DataType::fp16, sum);
  EXPECT_EQ(sum[0], 257);
  EXPECT_EQ(sum[1], std::numeric_limits<float>::infinity());
  EXPECT_TRUE(sum[2] == 0 && std::signbit(sum[2]));
  sum = {0x1.000002p0f, 1e30f};
  const std::vector<float> same = sum;
  SlotSum().round(DataType::fp32, sum);
  EXPECT_EQ(sum, same);
}

TEST(SlotSum, ASumOfNoSlotsIsAnError) {
  float sum = 0;
  EXPECT_THROW(SlotSum().add_up({}, 0, {&sum, 1}), Error);
}

}  // namespace
}  // namespace tilewire

#include "base/bytes.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <string>

namespace tilewire {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

static_assert(div_up(0, 7) == 0 && div_up(1, 7) == 1 && div_up(7, 7) == 1 && div_up(8, 7) == 2);
static_assert(round_up(0, 512) == 0 && round_up(513, 512) == 1024);
static_assert(round_down(513, 512) == 512);
static_assert(checked_mul(int64_t{1} << 31, int64_t{1} << 31) == int64_t{1} << 62);

template <class Call>
ErrorKind kind_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

TEST(Bytes, DivUpDoesNotOverflowNearTheMaximum) {
  EXPECT_EQ(div_up(kMax, 2), kMax / 2 + 1);
  EXPECT_EQ(div_up(kMax, kMax), 1);
}

TEST(Bytes, ProductsOf32BitSizesDoNotWrap) {
  EXPECT_EQ(checked_mul(98304, 28672), 2818572288);
  EXPECT_EQ(round_up((int64_t{1} << 32) + 1, 4096), (int64_t{1} << 32) + 4096);
}

TEST(Bytes, OverflowIsAResourceErrorNotASmallSize) {
  EXPECT_EQ(kind_of([] { checked_mul(kMax / 2, 3); }), ErrorKind::resource);
  EXPECT_EQ(kind_of([] { checked_add(kMax, 1); }), ErrorKind::resource);
  EXPECT_EQ(kind_of([] { checked_round_up(kMax, 4096); }), ErrorKind::resource);
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
}

TEST(Bytes, NarrowTakesTheEndsOfTheRangeAndNothingBeyond) {
  EXPECT_EQ(narrow<int32_t>(int64_t{2147483647}), 2147483647);
  EXPECT_EQ(narrow<uint16_t>(65535), 65535);
  EXPECT_EQ(narrow<uint64_t>(kMax), static_cast<uint64_t>(kMax));
  EXPECT_EQ(kind_of([] { narrow<int32_t>(int64_t{2147483648}); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([] { narrow<uint16_t>(-1); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([] { narrow<int64_t>(UINT64_MAX); }), ErrorKind::invalid_argument);
}

TEST(Bytes, NarrowNamesValueAndRange) {
  try {
    narrow<uint8_t>(300);
    FAIL() << "300 was taken for a byte";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("300, must be 0 to 255"), std::string::npos) << error.what();
  }
}

TEST(Bytes, PowersOfTwo) {
  EXPECT_TRUE(is_power_of_two(1));
  EXPECT_TRUE(is_power_of_two(int64_t{1} << 62));
  for (const int64_t value : {int64_t{0}, int64_t{-4}, int64_t{3}, kMax}) EXPECT_FALSE(is_power_of_two(value)) << value;
}

}  // namespace
}  // namespace tilewire

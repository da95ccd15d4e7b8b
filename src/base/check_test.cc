#include "base/check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <unordered_set>

namespace tilewire {
namespace {

template <class Call>
std::string text_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Check, PrintsBothOperandsAndTheNote) {
  const int64_t k = 1028;
  const std::string text = text_of([&] { TILEWIRE_CHECK_EQ(k % 8, 0, "k = {}", k); });
  EXPECT_EQ(text.rfind("k % 8 = 4, must be 0 (k = 1028) [check_test.cc:", 0), 0U) << text;
  EXPECT_NE(text.find("<internal>"), std::string::npos) << text;
}

TEST(Check, NamesTheOtherSideWhenItIsNotALiteral) {
  const int a = 3;
  const int limit = 2;
  const std::string text = text_of([&] { TILEWIRE_CHECK_LE(a, limit); });
  EXPECT_EQ(text.rfind("a = 3, must be at most limit = 2 [", 0), 0U) << text;
}

TEST(Check, AKindMayComeFirst) {
  try {
    TILEWIRE_CHECK_LT(5, 5, ErrorKind::resource);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource);
  }
  try {
    TILEWIRE_CHECK_GE(4, 5, ErrorKind::mismatch, "of rank {}", Rank(2));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_NE(std::string(error.what()).find("(of rank 2)"), std::string::npos) << error.what();
  }
}

TEST(Check, EachOperandIsEvaluatedOnce) {
  int left = 0;
  int right = 0;
  TILEWIRE_CHECK_EQ(++left, ++right);
  EXPECT_EQ(left, 1);
  EXPECT_EQ(right, 1);
  text_of([&] { TILEWIRE_CHECK_NE(++left, ++right); });
  EXPECT_EQ(left, 2);
  EXPECT_EQ(right, 2);
}

TEST(Check, SignedAndUnsignedCompareByValue) {
  const int64_t minus_one = -1;
  const uint64_t size = 4;
  EXPECT_EQ(text_of([&] { TILEWIRE_CHECK_LT(minus_one, size); }), "nothing was thrown");
  EXPECT_NE(text_of([&] { TILEWIRE_CHECK_GE(minus_one, size); }), "nothing was thrown");
  EXPECT_NE(text_of([&] { TILEWIRE_CHECK_EQ(minus_one, UINT64_MAX); }), "nothing was thrown");
}

TEST(Check, NanPassesNoComparison) {
  const double nan = std::nan("");
  EXPECT_NE(text_of([&] { TILEWIRE_CHECK_LE(nan, 1.0); }), "nothing was thrown");
  EXPECT_NE(text_of([&] { TILEWIRE_CHECK_GE(nan, 1.0); }), "nothing was thrown");
}

TEST(Check, EveryRelationFailsOnItsWrongSide) {
  EXPECT_EQ(text_of([] {
              TILEWIRE_CHECK_EQ(1, 1);
              TILEWIRE_CHECK_NE(1, 2);
              TILEWIRE_CHECK_LT(1, 2);
              TILEWIRE_CHECK_LE(2, 2);
              TILEWIRE_CHECK_GT(3, 2);
              TILEWIRE_CHECK_GE(2, 2);
            }),
            "nothing was thrown");
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_EQ(1, 2); }), "nothing was thrown");
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_NE(1, 1); }), "nothing was thrown");
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_LT(2, 2); }), "nothing was thrown");
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_LE(3, 2); }), "nothing was thrown");
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_GT(2, 2); }), "nothing was thrown");
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_GE(1, 2); }), "nothing was thrown");
}

TEST(Check, PrintsIdsEnumsStringsAndPointers) {
  const std::string name = "rail";
  const int* nothing = nullptr;
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_EQ(Rank(1), Rank(2)); }).find("= 2"), std::string::npos);
  EXPECT_NE(text_of([] { TILEWIRE_CHECK_EQ(ErrorKind::mismatch, ErrorKind::closed); }).find("= 1,"), std::string::npos);
  EXPECT_NE(text_of([&] { TILEWIRE_CHECK_EQ(name, "node"); }).find("name = rail"), std::string::npos);
  EXPECT_NE(text_of([&] { TILEWIRE_CHECK_NE(nothing, nullptr); }).find("nothing = 0x0"), std::string::npos);
}

TEST(Check, AConditionNamesItselfAndItsText) {
  const bool is_open = false;
  const std::string text = text_of([&] { TILEWIRE_CHECK(is_open, ErrorKind::closed, "channel {}", 7); });
  EXPECT_EQ(text.rfind("channel 7, is_open must hold [check_test.cc:", 0), 0U) << text;
  EXPECT_NE(text_of([] { TILEWIRE_UNREACHABLE("role {}", 9); }).find("role 9"), std::string::npos);
}

TEST(Check, IsOneStatementInAnIf) {
  bool reached_else = false;
  if (false)
    TILEWIRE_CHECK_EQ(1, 2);
  else
    reached_else = true;
  EXPECT_TRUE(reached_else);
}

TEST(Ids, HashAndFormatAsTheirNumber) {
  const std::unordered_set<Rank> ranks{Rank(1), Rank(2), Rank(1)};
  EXPECT_EQ(ranks.size(), 2U);
  EXPECT_EQ(fmt::format("{:>3}", Chunk(7)), "  7");
}

TEST(Error, LeavesEmptyPartsOut) {
  const Error error(ErrorKind::deadline, {.what = "no flag", .where = "rank 3"});
  EXPECT_STREQ(error.what(), "no flag [rank 3] <deadline>");
  EXPECT_STREQ(Error(ErrorKind::closed, {.what = "no call"}).what(), "no call <closed>");
  const Error full(ErrorKind::mismatch, {"a has too few rows", "rank 0", "M = 4", "must be 8", "pass rows="});
  EXPECT_STREQ(full.what(), "a has too few rows: M = 4, must be 8 [rank 0]; pass rows= <mismatch between ranks>");
}

}  // namespace
}  // namespace tilewire

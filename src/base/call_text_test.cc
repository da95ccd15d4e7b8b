#include "base/call_text.h"

#include <gtest/gtest.h>

namespace tilewire {
namespace {

CallText call() {
  return {.op = "toy", .parts = {{"[4, 5] rows"}, {.text = "K = 8", .advice = "bring as many"}}, .advice = "pass rows"};
}

TEST(CallText, TextHasOpAndPartsAndNoAdvice) {
  EXPECT_EQ(call().text(), "toy of [4, 5] rows, K = 8");
  EXPECT_EQ(plain_text("is long past").text(), "is long past");
  EXPECT_EQ(CallText{}.text(), "");
}

TEST(CallText, HashIsThatOfTheTextAlone) {
  CallText other = call();
  other.advice = "do something else";
  EXPECT_EQ(other.hash(), call().hash());
  other.parts[1].text = "K = 9";
  EXPECT_NE(other.hash(), call().hash());
}

TEST(CallText, PartsOfBothAreJoinedInOrder) { EXPECT_EQ(text_of(joined({{"a"}, {"b"}}, {{"c"}})), "a, b, c"); }

// What travels has a limit, and what comes first counts most.
TEST(CallText, ClippingKeepsTheBeginningAndNeverMoreThanAskedFor) {
  for (size_t most = 0; most < 64; ++most) {
    CallText text = call();
    text.clip(most);
    size_t bytes = text.op.size() + text.advice.size();
    for (const CallPart& part : text.parts) bytes += part.text.size() + part.advice.size();
    EXPECT_EQ(bytes, std::min<size_t>(most, 3 + 11 + 5 + 9 + 13));
    EXPECT_EQ(text.op, std::string("toy").substr(0, most));
    EXPECT_EQ(text.parts.size(), 2u);
  }
}

}  // namespace
}  // namespace tilewire

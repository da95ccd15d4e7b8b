// The tests that every op's planner has to pass. Its plan_test.cc has a struct
//
//   struct PlannedCase {
//     static Problem problem();                            of four ranks, with something to hide
//     static void change_own(Problem& problem, int32_t r);    whatever is rank r's own in it
//     static PlanChoice other();                           in which no number is the one that a plan has by itself
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(MyOp, OpPlanTest, PlannedCase);
//
// and of its own what else its plans are.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "testing/plan_test_support.h"

namespace tilewire {

template <class PlannedCase>
class OpPlanTest : public FourRanksPlanTest {
 protected:
  using Choice = decltype(PlannedCase::other());
  using Problem = typename Choice::Problem;

  // What both ways to a given plan refuse it with.
  std::string refusal(const Choice& choice) const {
    const Problem problem = PlannedCase::problem();
    const std::string text = error_of([&] { check_choice(choice, problem, context()); });
    EXPECT_EQ(error_of([&] { check_plan(choice, problem, context()); }), text);
    return text;
  }
  static std::vector<int64_t> numbers(const Choice& choice) {
    std::vector<int64_t> all;
    for_each_field(choice, [&](const char*, const auto& value, NumberRange) { all.push_back(value); });
    return all;
  }
};
TYPED_TEST_SUITE_P(OpPlanTest);

TYPED_TEST_P(OpPlanTest, TheSharedPartIsTheSameOnAllRanksWhateverIsTheirOwn) {
  const auto expected = make_plan(TypeParam::problem(), this->context());
  for (int32_t r = 0; r < 4; ++r) {
    auto problem = TypeParam::problem();
    TypeParam::change_own(problem, r);
    PlanContext context = this->context(r);
    context.workers = 1 + r;
    const auto plan = make_plan(problem, context);
    EXPECT_EQ(plan.choice.agreed(), expected.choice.agreed());
    EXPECT_EQ(plan.half_bytes, expected.half_bytes);
    EXPECT_EQ(plan.choice.workers, 1 + r);
  }
}

TYPED_TEST_P(OpPlanTest, EveryCandidateSaysWhyItLostAndOneOfThemIsUnfused) {
  const auto plan = make_plan(TypeParam::problem(), this->context());
  int chosen = 0, unfused = 0;
  for (const auto& c : plan.candidates) {
    EXPECT_FALSE(c.verdict.empty()) << c.text;
    chosen += c.verdict == "chosen";
    unfused += c.choice.is_fused ? 0 : 1;
  }
  EXPECT_EQ(chosen, 2) << "of the shared part, and of the own";
  EXPECT_GT(unfused, 0);
  const std::string text = plan.explain();
  EXPECT_EQ(text.rfind(plan.choice.text() + "\npredicted ", 0), 0u) << text;
  EXPECT_NE(text.find("of each half of the arena\nnot chosen:\n"), std::string::npos) << text;
  EXPECT_EQ(text.find(": chosen"), std::string::npos) << text;
}

TYPED_TEST_P(OpPlanTest, EveryNumberGoesThroughJsonAndBack) {
  using Choice = decltype(TypeParam::other());
  const Choice other = TypeParam::other();
  const std::vector<int64_t> numbers = this->numbers(other), plain = this->numbers(Choice{});
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_NE(numbers[i], plain[i]) << "the case leaves number " << i;
  const Choice again = Choice::from_json(to_json(other));
  EXPECT_EQ(this->numbers(again), numbers);
  EXPECT_EQ(again.text(), other.text()) << "a number is no field";
}

TYPED_TEST_P(OpPlanTest, JsonThatIsNoPlanIsNamed) {
  using Choice = decltype(TypeParam::other());
  const std::string good = to_json(TypeParam::other()), op = good.substr(0, good.find(','));
  const auto refusal = [](const std::string& json) { return error_of([&] { Choice::from_json(json); }); };
  EXPECT_NE(refusal("[1]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(refusal(R"({"op":"swim"})").find("op must be"), std::string::npos);
  EXPECT_NE(refusal(op + "}").find("a field is missing"), std::string::npos) << op;
  EXPECT_NE(refusal(good.substr(0, good.size() - 1) + R"(,"worker":3})").find("an unknown field: worker"),
            std::string::npos);
  std::string wide = good;
  wide.insert(good.find("\"workers\":") + 10, "99999999999");
  EXPECT_NE(refusal(wide).find("workers = 99999999999"), std::string::npos) << refusal(wide);
}

TYPED_TEST_P(OpPlanTest, NumbersOutOfTheirRangeAreRefusedByName) {
  using Choice = decltype(TypeParam::other());
  const int64_t count = static_cast<int64_t>(this->numbers(Choice{}).size());
  for (int64_t at = 0; at < count; ++at) {
    for (const bool is_below : {true, false}) {
      Choice choice;
      std::string expected;
      int64_t i = 0;
      for_each_field(choice, [&](const char* name, auto& value, NumberRange range) {
        using Value = std::remove_reference_t<decltype(value)>;
        const int64_t outside = is_below ? range.least - 1 : range.most + 1;
        if constexpr (!std::is_same_v<Value, bool>) {
          if (i++ != at || !std::in_range<Value>(outside)) return;
          value = static_cast<Value>(outside);
          expected = std::string(name) + " = " + std::to_string(outside) + ", must be in ";
        } else {
          ++i;
        }
      });
      if (expected.empty()) continue;
      EXPECT_NE(this->refusal(choice).find(expected), std::string::npos) << this->refusal(choice) << expected;
    }
  }
}

TYPED_TEST_P(OpPlanTest, WhatTheReservedArenaCannotHoldIsRefusedWithBothNumbers) {
  PlanContext context = this->context();
  context.arena.half_stride_bytes = 1 << 12;
  const std::string text = error_of([&] { make_plan(TypeParam::problem(), context); });
  EXPECT_NE(text.find("4096 bytes are reserved"), std::string::npos) << text;
  EXPECT_NE(text.find("TILEWIRE_ARENA_RESERVE_BYTES"), std::string::npos) << text;
}

TYPED_TEST_P(OpPlanTest, ARowListThatIsTooLongOrTooShortForTheRanksIsRefusedWithBothNumbers) {
  using Problem = decltype(TypeParam::problem());
  if constexpr (requires(Problem p) { p.rows.assign(3, 128); }) {
    using Choice = decltype(TypeParam::other());
    expect_one_row_count_for_each_of_four_ranks<Problem>(
        TypeParam::problem(), {[&](const Problem& p) { make_plan(p, this->context()); },
                               [&](const Problem& p) { check_plan(Choice{}, p, this->context()); },
                               [&](const Problem& p) { check_choice(Choice{}, p, this->context()); }});
  }
}

REGISTER_TYPED_TEST_SUITE_P(OpPlanTest, TheSharedPartIsTheSameOnAllRanksWhateverIsTheirOwn,
                            EveryCandidateSaysWhyItLostAndOneOfThemIsUnfused, EveryNumberGoesThroughJsonAndBack,
                            JsonThatIsNoPlanIsNamed, NumbersOutOfTheirRangeAreRefusedByName,
                            WhatTheReservedArenaCannotHoldIsRefusedWithBothNumbers,
                            ARowListThatIsTooLongOrTooShortForTheRanksIsRefusedWithBothNumbers);

}  // namespace tilewire

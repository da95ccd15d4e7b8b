// From candidates to the plan, on an op whose memory depends on its choice, as that of a reduction does.
#include "planning/planner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <functional>
#include <string>

namespace tilewire {
namespace {

struct Choice {
  int64_t chunk = 1;    // shared; what the call takes of each half is chunk * window
  int64_t window = 1;   // shared
  int32_t workers = 1;  // the rank's own

  std::string shared_text() const { return fmt::format("chunks of {}, {} in flight", chunk, window); }
  std::string text() const { return fmt::format("{}, {} workers", shared_text(), workers); }
};

template <class OneChoice, class Visit>
requires std::is_same_v<std::remove_const_t<OneChoice>, Choice>
void for_each_field(OneChoice& c, Visit&& visit) {
  visit("chunk", c.chunk, NumberRange{1, 1 << 20});
  visit("window", c.window, NumberRange{1, 64});
  visit("workers", c.workers, NumberRange{1, 64});
}

struct Problem {
  int64_t most_chunk = 1 << 20;
  CallParts agreed() const { return {{"rows"}}; }
  std::string text() const { return "rows and columns"; }
};

// The larger, the faster.
class Planner {
 public:
  using Problem = tilewire::Problem;
  using Choice = tilewire::Choice;
  static constexpr const char* kName = "toy";
  static constexpr const char* kSharedCost = "communication alone";
  static constexpr const char* kSharedAdvice = "cut it smaller";

  Planner(const Problem& problem, const PlanContext& context) : problem_(problem), context_(context) {}
  const Problem& problem() const { return problem_; }
  const PlanContext& context() const { return context_; }
  int64_t half_bytes(const Choice& c) const { return c.chunk * c.window; }
  std::string reason_against(const Choice& c) const { return c.chunk > problem_.most_chunk ? "too coarse" : ""; }
  Cost predict(const Choice& c) { return {.compute_s = 1, .communication_s = 1, .total_s = 2.0 / c.workers}; }
  std::vector<Choice> shared_candidates() const {
    return {{.chunk = 64, .window = 8}, {.chunk = 64, .window = 2}, {.chunk = 16, .window = 1}};
  }
  double shared_cost_s(const Choice& c) { return 1.0 / static_cast<double>(half_bytes(c)); }
  std::vector<Choice> candidates(const Choice& shared) const {
    Choice two = shared;
    two.workers = 2;
    return {shared, two};
  }

 private:
  const Problem& problem_;
  const PlanContext& context_;
};

PlanContext reserving(int64_t half_bytes) {
  PlanContext context{};
  context.arena.half_stride_bytes = half_bytes;
  return context;
}

struct Refusal {
  ErrorKind kind = ErrorKind::internal;
  std::string text;
};
Refusal refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  }
  return {};
}

TEST(PlannerTest, ACandidateThatDoesNotFitTheReserveLosesWithItsBytesAndTheNextOneIsTaken) {
  const Problem problem;
  const PlanContext context = reserving(200);
  const PlanOf<Choice> plan = best_plan(Planner(problem, context));
  EXPECT_EQ(plan.choice.window, 2);
  EXPECT_EQ(plan.choice.workers, 2);
  EXPECT_EQ(plan.half_bytes, 128);
  ASSERT_EQ(plan.candidates.size(), 5u);
  EXPECT_EQ(plan.candidates[0].verdict, "needs 512 bytes of each half of the arena, 200 bytes are reserved");
  EXPECT_EQ(plan.candidates[1].verdict, "chosen");
  EXPECT_EQ(plan.candidates[2].verdict.rfind("communication alone", 0), 0u) << plan.candidates[2].verdict;
}

TEST(PlannerTest, WhereNothingFitsTheReserveTheErrorSaysWhatToRaise) {
  const Problem problem;
  const PlanContext context = reserving(8);
  const Refusal refused = refusal([&] { best_plan(Planner(problem, context)); });
  EXPECT_EQ(refused.kind, ErrorKind::resource);
  EXPECT_NE(refused.text.find("needs 16 bytes"), std::string::npos) << refused.text;
  EXPECT_NE(refused.text.find("TILEWIRE_ARENA_RESERVE_BYTES"), std::string::npos) << refused.text;
}

TEST(PlannerTest, WhereReasonsOfTheOpLeaveNothingTheErrorHasItsAdvice) {
  const Problem problem{.most_chunk = 1};
  const PlanContext context = reserving(1 << 20);
  const Refusal refused = refusal([&] { best_plan(Planner(problem, context)); });
  EXPECT_EQ(refused.kind, ErrorKind::resource);
  EXPECT_NE(refused.text.find("too coarse"), std::string::npos) << refused.text;
  EXPECT_NE(refused.text.find("cut it smaller"), std::string::npos) << refused.text;
}

TEST(PlannerTest, AGivenPlanThatDoesNotFitTheReserveIsNamedWithBothNumbers) {
  const Problem problem;
  const PlanContext context = reserving(200);
  EXPECT_EQ(given_plan(Planner(problem, context), {.chunk = 50, .window = 4}).half_bytes, 200);
  const Refusal refused = refusal([&] { given_plan(Planner(problem, context), {.chunk = 67, .window = 3}); });
  EXPECT_EQ(refused.kind, ErrorKind::resource);
  EXPECT_NE(refused.text.find("needs 201 bytes"), std::string::npos) << refused.text;
  EXPECT_NE(refused.text.find("200 bytes are reserved"), std::string::npos) << refused.text;
}

TEST(PlannerTest, AGivenNumberOutOfItsRangeIsRefusedBeforeItsMemoryIsLookedAt) {
  const Problem problem;
  const PlanContext context = reserving(200);
  const Refusal refused = refusal([&] { given_plan(Planner(problem, context), {.chunk = 67, .window = 100}); });
  EXPECT_EQ(refused.kind, ErrorKind::invalid_argument);
  EXPECT_NE(refused.text.find("window = 100"), std::string::npos) << refused.text;
}

}  // namespace
}  // namespace tilewire

// How plans are made, for whoever needs one; done in planner.h, which only the source includes that has the Planner. Each
// type of plans says what it is for and who makes it, and a Problem which type is that of CPU ranks. So an op has
//
//   struct Problem { using Choice = PlanChoice; ... };                                               in problem.h
//   struct PlanChoice { using Problem = op::Problem; using Planner = op::Planner; from_json() };       in plan.h
//   extern template struct tilewire::PlansOf<tilewire::op::PlanChoice>;                              at its end
//   template struct tilewire::PlansOf<tilewire::op::PlanChoice>;           at the end of plan.cc, behind the Planner
#pragma once

#include <string>

#include "planning/plan_parts.h"

namespace tilewire {

template <class Choice>
struct PlansOf {
  using Problem = typename Choice::Problem;
  static PlanOf<Choice> best(const Problem& problem, const PlanContext& context);
  static PlanOf<Choice> given(const Choice& choice, const Problem& problem, const PlanContext& context);
  static void check(const Choice& choice, const Problem& problem, const PlanContext& context);
};

template <class Choice>
concept PlannedChoice = requires {
  typename Choice::Problem;
  typename Choice::Planner;
};

// The best of all candidates. The shared part depends on agreed values only. Throws Error(invalid_argument) for a problem
// that validate() refuses or that does not fit the ranks, and Error(resource) when no shared part fits the flag area, the
// wire's fields or the reserved arena, or too little is there to compute with.
template <PlannedChoice Choice>
PlanOf<Choice> make_plan(const typename Choice::Problem& problem, const PlanContext& context) {
  return PlansOf<Choice>::best(problem, context);
}
// On CPU ranks.
template <class Problem>
requires PlannedChoice<typename Problem::Choice> PlanOf<typename Problem::Choice> make_plan(
    const Problem& problem, const PlanContext& context) {
  return PlansOf<typename Problem::Choice>::best(problem, context);
}

// A plan for a choice that the caller gives. Throws as make_plan() does, and Error(invalid_argument) naming the number
// that cannot be.
template <PlannedChoice Choice>
PlanOf<Choice> check_plan(const Choice& choice, const typename Choice::Problem& problem, const PlanContext& context) {
  return PlansOf<Choice>::given(choice, problem, context);
}
// Throws what check_plan() throws, without working out what the plan costs.
template <PlannedChoice Choice>
void check_choice(const Choice& choice, const typename Choice::Problem& problem, const PlanContext& context) {
  PlansOf<Choice>::check(choice, problem, context);
}

// One of the two: no text, no plan given.
template <PlannedChoice Choice>
PlanOf<Choice> make_plan(const typename Choice::Problem& problem, const std::string& json, const PlanContext& context) {
  return json.empty() ? make_plan<Choice>(problem, context) : check_plan(Choice::from_json(json), problem, context);
}

}  // namespace tilewire

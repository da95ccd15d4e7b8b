// From a problem to its plan, the same for all ops. What is particular to an op is a class
//
//   class Planner : public PlannerOf<Choice> {            Choice::Problem: agreed(), text(), validate()
//     static constexpr const char* kName                  of the op, for errors
//     static constexpr const char* kSharedCost            what shared_cost_s is, as in "communication alone"
//     Planner(const Problem&, const PlanContext&);        throws where there can be no plan
//     std::string reason_against(const Choice&) const;    "" or why it cannot be; its numbers are in their ranges, and
//                                                         its memory fits
//     Cost predict(const Choice&);
//     // What must be equal on all ranks, by agreed values alone: neither context.me nor what may differ is looked at.
//     int64_t half_bytes(const Choice&) const;            of each half of the arena, by the shared part of the choice
//     std::vector<Choice> shared_candidates() const;      at least one
//     double shared_cost_s(const Choice&);
//     // What is each rank's own, for the shared part that was chosen.
//     std::vector<Choice> candidates(const Choice& shared) const;    at least one
//   };
// The Choice has, beside its text(), shared_text() of the shared part: "chunks of 64 rows".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planning/op_plans.h"

namespace tilewire {

// What planners of all ops have. Keeps both by reference.
template <class ChoiceOfOp>
class PlannerOf {
 public:
  using Choice = ChoiceOfOp;
  using Problem = typename Choice::Problem;
  // What to do when reasons of the op leave no shared candidate.
  static constexpr const char* kSharedAdvice = "raise TILEWIRE_MAX_CHUNKS_PER_SOURCE on all ranks";

  const Problem& problem() const { return p_; }
  const PlanContext& context() const { return x_; }

 protected:
  // Throws what validate() does.
  PlannerOf(const Problem& problem, const PlanContext& context) : p_(problem), x_(context) { p_.validate(); }

  const Problem& p_;
  const PlanContext& x_;
};

template <class Planner>
std::string reason_against_choice(const Planner& planner, const typename Planner::Choice& choice) {
  std::string reason = out_of_range_text(choice);
  if (reason.empty()) reason = reason_against_reserve(planner.half_bytes(choice), planner.context());
  return reason.empty() ? planner.reason_against(choice) : reason;
}

template <class Planner>
PlanOf<typename Planner::Choice> priced_plan(Planner& planner, const typename Planner::Choice& choice) {
  const Cost cost = planner.predict(choice);
  return {.choice = choice,
          .predicted_s = cost.total_s,
          .compute_s = cost.compute_s,
          .communication_s = cost.communication_s,
          .half_bytes = planner.half_bytes(choice),
          .candidates = {}};
}

// The best shared part; the candidates for it are appended.
template <class Planner>
typename Planner::Choice choose_shared(Planner& planner,
                                       std::vector<CandidateOf<typename Planner::Choice>>& candidates) {
  for (const typename Planner::Choice& choice : planner.shared_candidates()) {
    std::string reason = reason_against_choice(planner, choice);
    const double seconds = reason.empty() ? planner.shared_cost_s(choice) : 0;
    candidates.push_back({choice, seconds, choice.shared_text(), std::move(reason)});
  }
  const auto* best = choose_cheapest(Planner::kSharedCost, candidates);
  if (best == nullptr) {
    const auto& last = candidates.back();
    const bool is_too_large = !reason_against_reserve(planner.half_bytes(last.choice), planner.context()).empty();
    refuse_all_candidates(Planner::kName, text_of(planner.problem().agreed()), last.verdict,
                          is_too_large ? kReserveAdvice : Planner::kSharedAdvice);
  }
  return best->choice;
}

// The best of all candidates. Throws Error(resource) when no shared part can be.
template <class Planner>
PlanOf<typename Planner::Choice> best_plan(Planner planner) {
  using Choice = typename Planner::Choice;
  std::vector<CandidateOf<Choice>> candidates, own;
  const Choice shared = choose_shared(planner, candidates);
  for (const Choice& choice : planner.candidates(shared)) {
    own.push_back({choice, planner.predict(choice).total_s, choice.text(), ""});
  }
  PlanOf<Choice> plan = priced_plan(planner, choose_cheapest("predicted", own)->choice);
  candidates.insert(candidates.end(), own.begin(), own.end());
  plan.candidates = std::move(candidates);
  return plan;
}

// Throws for a choice that cannot be: Error(invalid_argument) naming the number, and Error(resource) when it needs more
// memory than is reserved.
template <class Planner>
void check_given(const Planner& planner, const typename Planner::Choice& choice) {
  std::string reason = out_of_range_text(choice);
  if (reason.empty()) {
    check_reserve(Planner::kName, planner.problem().text(), planner.half_bytes(choice), planner.context());
    reason = planner.reason_against(choice);
  }
  if (!reason.empty()) refuse_given_plan(Planner::kName, planner.problem().text(), std::move(reason));
}

// A plan for a choice that the caller gives. Throws as check_given() does.
template <class Planner>
PlanOf<typename Planner::Choice> given_plan(Planner planner, const typename Planner::Choice& choice) {
  check_given(planner, choice);
  PlanOf<typename Planner::Choice> plan = priced_plan(planner, choice);
  plan.candidates.push_back({choice, plan.predicted_s, choice.text(), "given"});
  return plan;
}

template <class Choice>
PlanOf<Choice> PlansOf<Choice>::best(const Problem& problem, const PlanContext& context) {
  return best_plan(typename Choice::Planner(problem, context));
}
template <class Choice>
PlanOf<Choice> PlansOf<Choice>::given(const Choice& choice, const Problem& problem, const PlanContext& context) {
  return given_plan(typename Choice::Planner(problem, context), choice);
}
template <class Choice>
void PlansOf<Choice>::check(const Choice& choice, const Problem& problem, const PlanContext& context) {
  check_given(typename Choice::Planner(problem, context), choice);
}

}  // namespace tilewire

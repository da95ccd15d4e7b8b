// What the planners of all ops share: what they look at, candidates with a verdict each, and the plan that comes out.
// A Choice is an op's struct of numbers, with text() for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "schedule/arena_layout.h"
#include "schedule/machine.h"
#include "schedule/topology.h"

namespace tilewire {

// What a planner looks at besides the problem.
struct PlanContext {
  Topology topology;
  Rank me;
  ArenaLayout arena;
  Machine machine;
  int32_t workers = 1;
};

template <class Choice>
struct CandidateOf {
  Choice choice;
  double predicted_s = 0;
  std::string verdict;  // "chosen", or why it lost
};

std::string prediction_text(double predicted_s, double compute_s, double communication_s, int64_t half_bytes);
std::string slower_text(double predicted_s, double best_s);

template <class Choice>
struct PlanOf {
  Choice choice;
  double predicted_s = 0;
  double compute_s = 0;        // alone
  double communication_s = 0;  // alone
  int64_t half_bytes = 0;      // what the call needs of each half of the arena
  std::vector<CandidateOf<Choice>> candidates;

  // For people: the choice, the prediction, and why the others lost.
  std::string explain() const {
    std::string out =
        choice.text() + "\n" + prediction_text(predicted_s, compute_s, communication_s, half_bytes) + "\n";
    for (const CandidateOf<Choice>& c : candidates) out += "  " + c.choice.text() + ": " + c.verdict + "\n";
    return out;
  }
};

// The cheapest of the candidates that have no verdict yet (the first one of equals; there must be one), and a verdict
// for each of them.
template <class Choice>
const CandidateOf<Choice>& choose_cheapest(std::vector<CandidateOf<Choice>>& candidates) {
  CandidateOf<Choice>* best = nullptr;
  for (CandidateOf<Choice>& c : candidates) {
    if (c.verdict.empty() && (best == nullptr || c.predicted_s < best->predicted_s)) best = &c;
  }
  for (CandidateOf<Choice>& c : candidates) {
    if (c.verdict.empty() && &c != best) c.verdict = slower_text(c.predicted_s, best->predicted_s);
  }
  best->verdict = "chosen";
  return *best;
}

// Throws Error(invalid_argument) unless there is one row count for each rank.
void check_one_count_a_rank(const char* op, size_t counts, const PlanContext& context);

// Throws Error(resource) when `what` needs more of each half than is reserved.
void check_reserve(const char* op, const char* what, int64_t half_bytes, const PlanContext& context);

}  // namespace tilewire

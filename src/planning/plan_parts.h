// What plans of all ops share: what a planner looks at, candidates with a verdict each, the plan that comes out, and
// its texts and errors. A Choice is an op's struct of numbers, with text() for people and a list of its numbers beside
// it (for_each_field, see plan_json.h). The way from candidates to the plan is in planner.h.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/call_text.h"
#include "base/ids.h"
#include "schedule/arena_layout.h"
#include "schedule/machine.h"
#include "schedule/topology.h"

namespace tilewire {

// What to do where plans differ in a number that all ranks must have.
inline constexpr const char* kPlanAdvice = "pass the same plan= on all ranks, or on none";

// What a planner looks at besides the problem.
struct PlanContext {
  Topology topology;
  Rank me;
  ArenaLayout arena;
  Machine machine;
  int32_t workers = 1;
};

// What a call should take.
struct Cost {
  double compute_s = 0;        // alone
  double communication_s = 0;  // alone
  double total_s = 0;
};

// What a number of a plan may be.
struct NumberRange {
  int64_t least = 0;
  int64_t most = 0;
};
// "" or "tile_rows = 0, must be in 1..4096".
std::string out_of_range_text(const char* name, int64_t value, NumberRange range);

// The numbers that the choice of every op ends with.
template <class SomeCursors, class Visit>
void for_each_cursor_field(SomeCursors& cursors, Visit&& visit) {
  visit("load_ahead", cursors.load_ahead, NumberRange{0, 64});
  visit("publish_behind", cursors.publish_behind, NumberRange{0, 64});
}

// The first number of the choice that is outside its range, or "". for_each_field(choice, visit) calls
// visit(name, member, range) for each number.
template <class Choice>
std::string out_of_range_text(const Choice& choice) {
  std::string text;
  for_each_field(choice, [&](const char* name, const auto& value, NumberRange range) {
    if (text.empty()) text = out_of_range_text(name, static_cast<int64_t>(value), range);
  });
  return text;
}

// Sizes from `least` on by doubling, and last `most`, which is at least 1.
std::vector<int64_t> doubling_sizes(int64_t least, int64_t most);

template <class Choice>
struct CandidateOf {
  Choice choice;
  double predicted_s = 0;
  std::string text;     // what it is
  std::string verdict;  // "chosen", "given", or why it lost
};

std::string prediction_text(const Cost& cost, int64_t half_bytes);
std::string slower_text(const char* what, double seconds, double best_s);
// What of a candidate's text, parts joined by commas, is not in the choice's: "tiles 64 x 256".
std::string difference_text(const std::string& candidate, const std::string& choice);

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
    const std::string chosen = choice.text();
    std::string out = chosen + "\n";
    out += prediction_text({compute_s, communication_s, predicted_s}, half_bytes) + "\n";
    const char* header = "not chosen:\n";
    for (const CandidateOf<Choice>& c : candidates) {
      if (c.verdict == "chosen" || c.verdict == "given") continue;
      out += header + ("  " + difference_text(c.text, chosen)) + ": " + c.verdict + "\n";
      header = "";
    }
    return out;
  }
};

// The cheapest of the candidates that have no verdict yet (the first one of equals), and a verdict for each of them;
// nullptr where all have one. `what` is what was priced.
template <class Choice>
const CandidateOf<Choice>* choose_cheapest(const char* what, std::vector<CandidateOf<Choice>>& candidates) {
  CandidateOf<Choice>* best = nullptr;
  for (CandidateOf<Choice>& c : candidates) {
    if (c.verdict.empty() && (best == nullptr || c.predicted_s < best->predicted_s)) best = &c;
  }
  for (CandidateOf<Choice>& c : candidates) {
    if (c.verdict.empty() && &c != best) c.verdict = slower_text(what, c.predicted_s, best->predicted_s);
  }
  if (best != nullptr) best->verdict = "chosen";
  return best;
}

// Throws Error(invalid_argument) unless there is one row count for each rank.
void check_one_count_a_rank(const char* op, size_t counts, const PlanContext& context);

// "" or that a call needs more of each half than is reserved.
std::string reason_against_reserve(int64_t half_bytes, const PlanContext& context);
inline constexpr const char* kReserveAdvice =
    "raise TILEWIRE_ARENA_RESERVE_BYTES on all ranks (to 128GiB at most), or bring fewer rows or columns to a call";
// Throws it as Error(resource). `of`: the problem as a text.
void check_reserve(const char* op, const std::string& of, int64_t half_bytes, const PlanContext& context);

// "" or why chunks of so many rows cannot be: too many for the flag area, or too large for a command.
std::string reason_against_chunks(int64_t chunk_rows, int64_t most_rows, int64_t row_bytes, const PlanContext& context);

// `of`: the problem as a text.
[[noreturn]] void refuse_given_plan(const char* op, const std::string& of, std::string reason);
[[noreturn]] void refuse_all_candidates(const char* op, const std::string& of, std::string last_reason,
                                        const char* advice);

}  // namespace tilewire

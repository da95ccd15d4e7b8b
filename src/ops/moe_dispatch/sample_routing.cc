#include "ops/moe_dispatch/sample_routing.h"

#include <limits>
#include <numeric>
#include <string>

namespace tilewire::moe_dispatch {
namespace {

// Steps of about 0.62 of the experts spread neighbours far apart; with no common divisor all are met before any again.
int64_t step_of(int64_t experts) {
  int64_t step = experts * 5 / 8 + 1;
  while (std::gcd(step, experts) != 1) ++step;
  return step;
}

// The records of all ranks, the same whoever asks; those of the last problem are kept, as all ranks of a simulation ask
// for them one after the other.
struct Records {
  std::string of;
  std::vector<std::vector<int32_t>> by_rank;
};

const Records& sample_records(const Problem& problem, const PlanChoice& choice, const Schedule& schedule) {
  thread_local Records records;
  std::string of = problem.text() + text_of(choice.agreed());
  for (int32_t r = 0; r < schedule.ranks(); ++r) of += std::to_string(schedule.topology().node(Rank{r}).value) + ",";
  if (records.of == of) return records;
  records = {std::move(of), {}};
  std::vector<int32_t> ids(static_cast<size_t>(problem.planned_tokens * problem.top_k));
  for (int32_t r = 0; r < schedule.ranks(); ++r) {
    for (int64_t token = 0; token < problem.planned_tokens; ++token) {
      for (int32_t slot = 0; slot < problem.top_k; ++slot) {
        ids[static_cast<size_t>(token * problem.top_k + slot)] =
            static_cast<int32_t>(sample_expert(problem, Rank{r}, token, slot));
      }
    }
    Schedule of_rank = schedule;
    of_rank.frame.me = Rank{r};
    auto& record = records.by_rank.emplace_back(
        static_cast<size_t>(schedule.record_words(schedule.rounds_of_tokens(problem.planned_tokens))));
    RoutingTables().count(of_rank, {ids.data(), problem.planned_tokens, problem.top_k}, record);
  }
  return records;
}

}  // namespace

int64_t sample_expert(const Problem& problem, Rank source, int64_t token, int32_t slot) {
  const int64_t experts = problem.experts();
  return ((token * problem.top_k + slot) % experts * step_of(experts) + source.value) % experts;
}

SampledTables::SampledTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : ScheduleTables(problem, choice, context) {
  const Schedule s = schedule(1);
  const Records& records = sample_records(problem, choice, s);
  routing().route(s, std::numeric_limits<int64_t>::max(),
                  [&](Rank r) { return records.by_rank[static_cast<size_t>(r.value)].data(); });
}

}  // namespace tilewire::moe_dispatch

#include "ops/moe_dispatch/sample_routing.h"

#include <cstddef>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

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
struct SampleRecords {
  std::string of;
  std::vector<std::byte> all;
};

const std::byte* sample_records(const Problem& problem, const PlanChoice& choice, const Schedule& schedule) {
  thread_local SampleRecords records;
  std::string of = problem.text() + text_of(choice.agreed());
  for (int32_t r = 0; r < schedule.ranks(); ++r) of += std::to_string(schedule.topology().node(Rank{r}).value) + ",";
  if (records.of == of) return records.all.data();
  const auto bytes = static_cast<size_t>(schedule.buffers.record_bytes);
  records = {std::move(of), std::vector<std::byte>(bytes * static_cast<size_t>(schedule.ranks()))};
  std::vector<int64_t> seen(static_cast<size_t>(schedule.topology().nodes));
  for (int32_t r = 0; r < schedule.ranks(); ++r) {
    const std::vector<int32_t> ids = sample_routes(problem, Rank{r});
    Schedule of_rank = schedule;
    of_rank.frame.me = Rank{r};
    count_routes(of_rank, {ids.data(), problem.planned_tokens, problem.top_k}, seen,
                 {reinterpret_cast<int32_t*>(records.all.data() + static_cast<size_t>(r) * bytes),
                  static_cast<size_t>(schedule.record_words(schedule.rounds_of_tokens(problem.planned_tokens)))});
  }
  return records.all.data();
}

}  // namespace

int64_t sample_expert(const Problem& problem, Rank source, int64_t token, int32_t slot) {
  const int64_t experts = problem.experts();
  return ((token * problem.top_k + slot) % experts * step_of(experts) + source.value) % experts;
}

std::vector<int32_t> sample_routes(const Problem& problem, Rank source) {
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(problem.planned_tokens * problem.top_k));
  for (int64_t token = 0; token < problem.planned_tokens; ++token) {
    for (int32_t slot = 0; slot < problem.top_k; ++slot) {
      ids.push_back(static_cast<int32_t>(sample_expert(problem, source, token, slot)));
    }
  }
  return ids;
}

SampledTables::SampledTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
    : ScheduleTables(problem, choice, context) {
  Schedule s = ScheduleTables::schedule(1);
  memory_.give(s);
  routing_ = s.routing;
  route(s, std::numeric_limits<int64_t>::max(), sample_records(problem, choice, s));
}

Schedule SampledTables::schedule(Epoch epoch) const {
  Schedule s = ScheduleTables::schedule(epoch);
  s.routing = routing_;
  return s;
}

}  // namespace tilewire::moe_dispatch

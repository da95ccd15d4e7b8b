#include "api/plan_query.h"

#include <fmt/format.h>
#include <tilewire/options.h>

#include <numeric>
#include <utility>

#include "api/communicator_parts.h"
#include "api/machine_numbers.h"

namespace tilewire {
namespace {

constexpr int64_t kMostRanks = 1 << 20;  // as the options of a communicator allow

[[noreturn]] void refuse(const char* what, std::string values, std::string limit) {
  throw Error(ErrorKind::invalid_argument,
              {.what = what, .where = "plan", .values = std::move(values), .limit = std::move(limit)});
}

// The arena of a communicator of so many ranks that is made in this environment.
ArenaLayout arena_of(int32_t ranks) { return arena_layout(ranks, Options::from_environment()); }

// Before the tables, whose size follows from it. What no communicator can be is refused as it would refuse it.
const std::vector<int32_t>& checked_layout(const std::vector<int32_t>& layout) {
  for (size_t n = 0; n < layout.size(); ++n) {
    if (layout[n] < 1) refuse("a node has no ranks", fmt::format("ranks_per_node[{}] = {}", n, layout[n]), ">= 1");
  }
  const int64_t ranks = std::accumulate(layout.begin(), layout.end(), int64_t{0});
  if (ranks < 1 || ranks > kMostRanks) {
    refuse("there cannot be so many ranks", fmt::format("ranks_per_node lists {} ranks", ranks),
           fmt::format("1 to {}", kMostRanks));
  }
  check_limits(arena_of(static_cast<int32_t>(ranks)));
  return layout;
}

}  // namespace

PlanSite::PlanSite(const MachineQuery& query)
    : topology_(TopologyTables::from_layout(checked_layout(query.ranks_per_node))) {
  const int32_t ranks = topology_.view().ranks;
  if (query.rank < 0 || query.rank >= ranks) {
    refuse("no such rank", fmt::format("rank = {}, layout = {}", query.rank, topology_.describe()),
           fmt::format("0 to {}", ranks - 1));
  }
  AskedMachine asked = machine_of(query);
  machine_text_ = std::move(asked.text);
  context_ = {.topology = topology_.view(),
              .me = Rank{query.rank},
              .arena = arena_of(ranks),
              .machine = asked.machine,
              .workers = asked.workers};
}

void add_simulation(PlanAnswer& answer, const TimedReport& timed) {
  answer.simulated_s = timed.seconds;
  for (const TraceEvent& e : timed.trace) answer.timeline.push_back(to_work_event(e));
}

}  // namespace tilewire

#include "api/plan_query.h"

#include <fmt/format.h>
#include <tilewire/options.h>

#include <numeric>

#include "api/communicator_parts.h"

namespace tilewire {
namespace {

constexpr int64_t kMostRanks = 1 << 20, kMostWorkers = 4096;  // as the options of a communicator allow
constexpr double kLeast = 1e-9, kMost = 1e9;                  // of a rate or a latency; what follows stays finite

[[noreturn]] void refuse(const char* what, std::string values, std::string limit) {
  throw Error(ErrorKind::invalid_argument,
              {.what = what, .where = "plan", .values = std::move(values), .limit = std::move(limit)});
}

// 0 leaves the default. A number that is none (NaN) is in no range.
void set_from(const char* name, double asked, double unit, double& value) {
  if (asked == 0) return;
  if (!(asked >= kLeast && asked <= kMost)) {
    refuse("a number of the machine cannot be", fmt::format("{} = {}", name, asked),
           fmt::format("from {:g} to {:g}, or 0 for the cost model's default", kLeast, kMost));
  }
  value = asked * unit;
}

Machine machine_of(const MachineQuery& q) {
  Machine m;
  set_from("worker_tflops", q.worker_tflops, 1e12, m.worker_flops);
  set_from("node_gb_per_s", q.node_gb_per_s, 1e9, m.node_bytes_per_s);
  set_from("network_gbit_per_s", q.network_gbit_per_s, 1e9 / 8, m.network_bytes_per_s);
  set_from("network_latency_us", q.network_latency_us, 1e-6, m.network_latency_s);
  return m;
}

// The arena of a communicator of so many ranks that is made in this environment.
ArenaLayout arena_of(int32_t ranks) {
  const Options options = Options::from_environment();
  return {.flags = {.ranks = ranks, .max_chunks = static_cast<int32_t>(options.max_chunks_per_source)},
          .half_stride_bytes = options.arena_reserve_bytes,
          .user_stride_bytes = options.user_arena_reserve_bytes};
}

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
  if (query.workers < 1 || query.workers > kMostWorkers) {
    refuse("there cannot be so many workers", fmt::format("workers = {}", query.workers),
           fmt::format("1 to {}", kMostWorkers));
  }
  context_ = {.topology = topology_.view(),
              .me = Rank{query.rank},
              .arena = arena_of(ranks),
              .machine = machine_of(query),
              .workers = query.workers};
}

void add_simulation(PlanAnswer& answer, const TimedReport& timed) {
  answer.simulated_s = timed.seconds;
  for (const TraceEvent& e : timed.trace) answer.timeline.push_back(to_work_event(e));
}

}  // namespace tilewire

#include "api/plan_query.h"

#include <fmt/format.h>
#include <tilewire/options.h>

#include <algorithm>

#include "api/communicator_parts.h"

namespace tilewire {
namespace {

Machine machine_of(const MachineQuery& q) {
  Machine m;
  if (q.worker_tflops > 0) m.worker_flops = q.worker_tflops * 1e12;
  if (q.node_gb_per_s > 0) m.node_bytes_per_s = q.node_gb_per_s * 1e9;
  if (q.network_gbit_per_s > 0) m.network_bytes_per_s = q.network_gbit_per_s * 1e9 / 8;
  if (q.network_latency_us > 0) m.network_latency_s = q.network_latency_us * 1e-6;
  return m;
}

}  // namespace

PlanSite::PlanSite(const MachineQuery& query) : topology_(TopologyTables::from_layout(query.ranks_per_node)) {
  const int32_t ranks = topology_.view().ranks;
  if (query.rank < 0 || query.rank >= ranks) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "no such rank",
                 .where = "plan",
                 .values = fmt::format("rank = {}, layout = {}", query.rank, topology_.describe())});
  }
  const Options defaults;
  context_ = {.topology = topology_.view(),
              .me = Rank{query.rank},
              .arena = {.flags = {.ranks = ranks, .max_chunks = static_cast<int32_t>(defaults.max_chunks_per_source)},
                        .half_stride_bytes = defaults.arena_reserve_bytes,
                        .user_stride_bytes = defaults.user_arena_reserve_bytes},
              .machine = machine_of(query),
              .workers = std::max(1, query.workers)};
}

void add_simulation(PlanAnswer& answer, const TimedReport& timed) {
  answer.simulated_s = timed.seconds;
  for (const TraceEvent& e : timed.trace) answer.timeline.push_back(to_work_event(e));
}

}  // namespace tilewire

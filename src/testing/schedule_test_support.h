// For tests of an op's iterators by themselves: the schedules of all ranks of a call, and the walk of a role.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "planning/plan_parts.h"
#include "schedule/topology_tables.h"

namespace tilewire {

// Tables makes schedules (planning/op_simulation.h).
template <class Tables>
class ScheduledRanks {
 public:
  template <class Problem, class Choice>
  ScheduledRanks(const std::vector<int32_t>& layout, const Problem& problem, const Choice& choice)
      : topology_(TopologyTables::from_layout(layout)) {
    for (int32_t r = 0; r < size(); ++r) tables_.emplace_back(problem, choice, context(r));
  }

  auto at(int32_t rank) const { return tables_[static_cast<size_t>(rank)].schedule(1); }
  Topology topology() const { return topology_.view(); }
  int32_t size() const { return topology_.view().ranks; }
  PlanContext context(int32_t rank) const {
    return {.topology = topology_.view(),
            .me = Rank{rank},
            .arena = {.flags = {.ranks = size(), .max_chunks = 256},
                      .half_stride_bytes = 1 << 20,
                      .user_stride_bytes = 1 << 20},
            .machine = {}};
  }

 private:
  TopologyTables topology_;
  std::deque<Tables> tables_;
};

// visit(work, role) for each piece of work.
template <class Role, class Visit>
void walk(Role role, const Visit& visit) {
  typename Role::Work w;
  while (role.next(w)) visit(w, role);
}

// For tests that go over them all.
inline const std::vector<std::vector<int32_t>>& uneven_layouts() {
  static const std::vector<std::vector<int32_t>> kLayouts = {{1},    {4},    {2, 2},    {3, 1},
                                                             {1, 3}, {2, 3}, {1, 1, 2}, {4, 1, 3}};
  return kLayouts;
}

}  // namespace tilewire

// For tests of an op's iterators by themselves: the schedules of all ranks of a call, and the walk of a role.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "planning/plan_parts.h"
#include "schedule/role_list.h"
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

// The agents that for_each_role() beside the schedules of these calls visits are those of the op's list
// (schedule/role_list.h), with the rings that it says; all roles of the list have some but "none", and "call", which is
// that of every call.
template <class Roles, class Ranks>
void expect_agents_of_all_roles(const std::deque<Ranks>& calls) {
  std::map<std::string, int32_t> listed;
  for (const RoleEntry& entry : Roles::kAll) listed[entry.name] = entry.ring;
  std::set<std::string> visited = {"none", "call"};
  for (const Ranks& ranks : calls) {
    for (int32_t r = 0; r < ranks.size(); ++r) {
      for_each_role(ranks.at(r), Cursors{}, [&](const AgentPlace& place, const auto&) {
        ASSERT_EQ(listed.count(place.role), 1u) << place.role << " is not in the list";
        EXPECT_EQ(place.ring, listed[place.role]) << place.role;
        visited.insert(place.role);
      });
    }
  }
  for (const auto& [role, ring] : listed) EXPECT_EQ(visited.count(role), 1u) << role << " has no agent";
}

// For tests that go over them all.
inline const std::vector<std::vector<int32_t>>& uneven_layouts() {
  static const std::vector<std::vector<int32_t>> kLayouts = {{1},    {4},    {2, 2},    {3, 1},
                                                             {1, 3}, {2, 3}, {1, 1, 2}, {4, 1, 3}};
  return kLayouts;
}

}  // namespace tilewire

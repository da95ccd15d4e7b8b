// For an op's test that its iterators do on a GPU what they do on the host (schedule/device_walk.cuh): its problem, its
// plan, and which of its tables go to the device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/device_test.cuh"
#include "planning/plan_parts.h"
#include "schedule/device_walk.cuh"
#include "schedule/topology_tables.h"

namespace tilewire {

// What is different in the call of any rank of the layout, or "". Tables makes schedules (planning/op_simulation.h);
// `on_device(schedule)` returns it with its tables on the GPU.
template <class Tables, class Problem, class Choice, class OnDevice>
std::string walk_difference_of(const std::vector<int32_t>& layout, const Problem& problem, const Choice& choice,
                               const OnDevice& on_device) {
  const TopologyTables topology = TopologyTables::from_layout(layout);
  for (int32_t r = 0; r < topology.view().ranks; ++r) {
    const PlanContext context{.topology = topology.view(),
                              .me = Rank{r},
                              .arena = {.flags = {.ranks = topology.view().ranks, .max_chunks = 64},
                                        .half_stride_bytes = 1 << 20,
                                        .user_stride_bytes = 1 << 20},
                              .machine = {}};
    const Tables tables(problem, choice, context);
    const auto schedule = tables.schedule(9);
    if (std::string difference = walk_difference(schedule, on_device(schedule)); !difference.empty()) return difference;
  }
  return {};
}

// What a test prints, and its exit status.
struct WalkOutcome {
  int status = 0;
  std::string text;
};

// The call of 3 + 2 ranks by each of the plans.
template <class Tables, class Problem, class Choice, class OnDevice>
WalkOutcome test_walks(const Problem& problem, const std::vector<Choice>& choices, const OnDevice& on_device) {
  if (!has_gpu()) return {kSkipped, "no GPU: compiled only"};
  for (const Choice& choice : choices) {
    const std::string difference = walk_difference_of<Tables>({3, 2}, problem, choice, on_device);
    if (!difference.empty()) return {1, choice.text() + ": " + difference};
  }
  return {0, "the GPU walks as the host does"};
}

}  // namespace tilewire

// What tests of planners have in common.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error_of.h"
#include "planning/op_plans.h"
#include "schedule/topology_tables.h"

namespace tilewire {

// Four ranks on two nodes, with all the memory that they could want.
class FourRanksPlanTest : public testing::Test {
 protected:
  PlanContext context(int32_t rank = 0) const {
    return {.topology = topology_.view(),
            .me = Rank{rank},
            .arena = {.flags = {.ranks = 4, .max_chunks = 1024},
                      .half_stride_bytes = int64_t{64} << 30,
                      .user_stride_bytes = int64_t{1} << 30},
            .machine = {},
            .workers = 1};
  }

 private:
  TopologyTables topology_ = TopologyTables::from_layout({2, 2});
};

// A list of rows that is too long or too short for 4 ranks, by each way to a plan: whatever walks the ranks would read
// past its end.
template <class Problem>
void expect_one_row_count_for_each_of_four_ranks(Problem problem,
                                                 const std::vector<std::function<void(const Problem&)>>& ways) {
  for (const size_t counts : {3, 5}) {
    problem.rows.assign(counts, 128);
    for (const auto& way : ways) {
      const std::string text = error_of([&] { way(problem); });
      EXPECT_NE(text.find(std::to_string(counts) + " row counts"), std::string::npos) << text;
      EXPECT_NE(text.find("4 ranks"), std::string::npos) << text;
    }
  }
}

}  // namespace tilewire

// For tests of plans: what the plans of all ops have to refuse.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error_of.h"

namespace tilewire {

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

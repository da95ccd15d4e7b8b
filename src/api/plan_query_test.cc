// What a plan query refuses, asked through the public interface.
#include <gtest/gtest.h>
#include <tilewire/all_gather_gemm.h>

namespace tilewire {
namespace {

std::string error_of(const PlanQuery& query) {
  try {
    plan_all_gather_matmul(query);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return error.what();
  }
  return "";
}

PlanQuery query_of(size_t counts) {
  PlanQuery query;
  query.ranks_per_node = {2, 2};
  query.shape.rows.assign(counts, 64);
  query.shape.k = 32;
  query.shape.cols = {48};
  return query;
}

TEST(PlanQuery, OneRowCountARankIsPlanned) {
  EXPECT_EQ(error_of(query_of(4)), "");
  EXPECT_GT(plan_all_gather_matmul(query_of(4)).simulated_s, 0);
}

TEST(PlanQuery, ARowListThatIsTooLongOrTooShortForTheLayoutIsRefusedWithBothNumbers) {
  for (const size_t counts : {3, 5}) {
    const std::string text = error_of(query_of(counts));
    EXPECT_NE(text.find(std::to_string(counts) + " row counts"), std::string::npos) << text;
    EXPECT_NE(text.find("4 ranks"), std::string::npos) << text;
  }
}

TEST(PlanQuery, ARankOutsideTheLayoutIsRefusedWithBothNumbers) {
  PlanQuery query = query_of(4);
  query.rank = 4;
  EXPECT_NE(error_of(query).find("rank = 4, layout = 2+2"), std::string::npos) << error_of(query);
}

}  // namespace
}  // namespace tilewire

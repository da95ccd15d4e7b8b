#include <gtest/gtest.h>

#include "ops/ag_gemm/call_fixture.h"

namespace tilewire::ag_gemm {
namespace {

TEST(AgGemm, EvenShardsOnTwoNodesOfTwoGiveEveryElement) {
  run_and_check({2, 2}, test_options(), {{.rows = {32, 32, 32, 32}, .k = 64, .cols = {48}}});
}

}  // namespace
}  // namespace tilewire::ag_gemm

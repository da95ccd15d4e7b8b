// What gpu_ranks_test knows of an operation: one call of a rank with its data, and texts. Another operation that has a kernel
// is another such struct, and an instance of RankTests in rank_tests.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "gpu_program.cuh"
#include "rank_case.h"
#include "schedule/topology.h"

#include <tilewire/call.h>

namespace tilewire {

struct AgGemmRankOp {
  using Case = RankCase;
  using Device = Case::Device;

  static constexpr const char* kMisalignedText = "a is misaligned";
  static constexpr const char *kFirstText = "K = 256", *kOtherText = "K = 72";  // of shapes()[0] and [2]

  // The first one is for tests that are about no shape.
  static std::vector<RankShape> shapes(int32_t ranks);
  // Makes them such that each rank refuses them by itself.
  static void misalign(ag_gemm::Arguments& arguments) {
    arguments.a.data = static_cast<std::byte*>(arguments.a.data) + 2;
  }
  // What a call of an even shape reports to have moved.
  static void expect_moved(const CallReport& report, const Topology& t, Rank me, const RankShape& shape);
};

}  // namespace tilewire

// What gpu_ranks_test knows of an operation: one call of a rank with its data, and texts. Another operation that has a kernel
// is another such struct, and an instance of RankTests in rank_tests.cc.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "gpu_program.cuh"
#include "rank_case.h"
#include "reduction_rank_case.h"

#include "ops/gemm_ar/device_op.h"
#include "ops/gemm_rs/device_op.h"
#include "schedule/topology.h"

#include <tilewire/call.h>

namespace tilewire {

struct AgGemmRankOp {
  using Case = RankCase;
  using Shape = RankShape;
  using Device = Case::Device;

  static constexpr const char *kFirstText = "K = 256", *kOtherText = "K = 72";  // of shapes()[0] and [2]

  // The first one is for tests that are about no shape.
  static std::vector<Shape> shapes(const Topology& t);
  // None of those.
  static Shape new_shape(const Topology& t);
  // Says what each rank brings, as a call in a graph has to.
  static void set_rows(Device::Op::Arguments& args, const Shape& shape) {
    args.rows = {RowCounts::From::list, shape.rows};
  }
  // What a call of shapes()[0] reports to have moved.
  static void expect_moved(const CallReport& report, const Topology& t, Rank me);
  // Whose work a timeline of that call shows.
  static std::set<std::string> roles(const Topology& t, Rank me);
};

// What the operations have in common that sum products over ranks.
struct ReductionRankOp {
  using Shape = ReductionSize;

  static constexpr const char *kFirstText = "N = 320", *kOtherText = "N = 96";

  static std::vector<Shape> shapes(const Topology& t);
  static Shape new_shape(const Topology& t);
};

struct GemmRsRankOp : ReductionRankOp {
  using Device = gemm_rs::DeviceOp;
  using Case = ReductionRankCase<GemmRsRankOp>;

  static int64_t first_row(const Shape& size, int32_t r) { return rows_before(size, r); }
  static int64_t rows(const Shape& size, int32_t r) { return size.rows[static_cast<size_t>(r)]; }
  static int32_t bias_of(int32_t r) { return r; }
  static void set_rows(Device::Arguments& args, const Shape& size) { args.rows = {RowCounts::From::list, size.rows}; }
  static void expect_moved(const CallReport& report, const Topology& t, Rank me);
  static std::set<std::string> roles(const Topology& t, Rank me);
};

struct GemmArRankOp : ReductionRankOp {
  using Device = gemm_ar::DeviceOp;
  using Case = ReductionRankCase<GemmArRankOp>;

  static int64_t first_row(const Shape&, int32_t) { return 0; }
  static int64_t rows(const Shape& size, int32_t) { return rows_before(size, static_cast<int32_t>(size.rows.size())); }
  static int32_t bias_of(int32_t) { return 0; }
  static void set_rows(Device::Arguments&, const Shape&) {}
  static void expect_moved(const CallReport& report, const Topology& t, Rank me);
  static std::set<std::string> roles(const Topology& t, Rank me);
};

}  // namespace tilewire

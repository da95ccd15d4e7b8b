// What gpu_ranks_test knows of an operation: one call of a rank with its data, and texts. Another operation that has a kernel
// is another such struct, and an instance of RankTests in rank_tests.cc.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "attention_rank_case.h"
#include "gpu_program.cuh"
#include "moe_rank_case.h"
#include "rank_case.h"
#include "reduction_rank_case.h"

#include "ops/gemm_ar/device_op.h"
#include "ops/gemm_rs/device_op.h"
#include "schedule/topology.h"

#include <tilewire/call.h>

namespace tilewire {

// Where rows do not begin at multiples of 16 bytes.
inline void misalign(void*& data) { data = static_cast<std::byte*>(data) + 2; }

struct AgGemmRankOp {
  using Case = RankCase;
  using Shape = RankShape;
  using Device = Case::Device;

  static constexpr const char *kFirstText = "K = 256", *kOtherText = "K = 72";  // of shapes()[0] and [2]
  static constexpr const char* kRefusedText = "a is misaligned";

  // The first one is for tests that are about no shape.
  static std::vector<Shape> shapes(const Topology& t);
  // None of those.
  static Shape new_shape(const Topology& t);
  // What each rank refuses by itself, with that text.
  static void spoil(Device::Op::Arguments& args) { misalign(args.a.data); }
  // Says what each rank brings, as a call in a graph has to.
  static void set_rows(Device::Op::Arguments& args, const Shape& shape) {
    args.rows = {RowCounts::From::list, shape.rows};
  }
  static bool fits_graphs(const Shape&) { return true; }  // with that
  // What a call of shapes()[0] reports to have moved.
  static void expect_moved(const CallReport& report, const Topology& t, Rank me);
  // Whose work a timeline of that call shows.
  static std::set<std::string> roles(const Topology& t, Rank me);
};

// What the operations have in common that sum products over ranks.
struct ReductionRankOp {
  using Shape = ReductionSize;

  static constexpr const char *kFirstText = "N = 320", *kOtherText = "N = 96";
  static constexpr const char* kRefusedText = AgGemmRankOp::kRefusedText;

  static std::vector<Shape> shapes(const Topology& t);
  static Shape new_shape(const Topology& t);
  template <class Arguments>
  static void spoil(Arguments& args) {
    misalign(args.a.data);
  }
  static bool fits_graphs(const Shape&) { return true; }
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

struct AttentionRankOp {
  using Case = AttentionRankCase;
  using Shape = AttentionRankShape;
  using Device = Case::Device;

  static constexpr const char *kFirstText = "heads 4/2", *kOtherText = "heads 2/1";
  static constexpr const char* kRefusedText = "q is misaligned";

  static std::vector<Shape> shapes(const Topology& t);
  static Shape new_shape(const Topology& t);
  // Of one shape, each with other documents.
  static Shape packed(const Topology& t, int64_t number);
  static void spoil(Device::Op::Arguments& args) { misalign(args.q.data); }
  static void set_rows(Device::Op::Arguments& args, const Shape& shape) {
    args.rows = {RowCounts::From::list, shape.rows};
    args.kv_rows = {RowCounts::From::list, shape.keys()};
  }
  // Positions that are given are told in each call.
  static bool fits_graphs(const Shape& shape) { return shape.placement != attention::Placement::given; }
  static void expect_moved(const CallReport& report, const Topology& t, Rank me);
  static std::set<std::string> roles(const Topology& t, Rank me);
};

struct MoeDispatchRankOp {
  using Case = MoeRankCase;
  using Shape = MoeRankShape;
  using Device = Case::Device;

  static constexpr const char *kFirstText = "H = 136", *kOtherText = "H = 72";
  static constexpr const char* kRefusedText = "x is misaligned";

  static std::vector<Shape> shapes(const Topology& t);
  static Shape new_shape(const Topology& t);
  static void spoil(Device::Arguments& args) { misalign(args.x.data); }
  static void set_rows(Device::Arguments&, const Shape&) {}
  // The host reads no counts there.
  static bool fits_graphs(const Shape& shape) { return !shape.is_counted; }
  static void expect_moved(const CallReport& report, const Topology& t, Rank me);
  static std::set<std::string> roles(const Topology& t, Rank me);
};

}  // namespace tilewire

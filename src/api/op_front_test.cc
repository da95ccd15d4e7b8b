// The public fronts of operations whose operands are their own: that each part of a call, a handle and a plan comes
// through, on two ranks whose results one can work out by hand. What results are in general the folders of the ops test.
#include <gtest/gtest.h>
#include <tilewire/moe_dispatch_gemm.h>
#include <tilewire/ring_attention.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/two_communicators.h"

namespace tilewire {
namespace {

constexpr uint16_t kOne = 0x3f80, kTwo = 0x4000, kThree = 0x4040;  // bf16

void expect_well(const std::array<Ending, 2>& endings) {
  for (const Ending& ending : endings) EXPECT_EQ(ending.text, "");
}

// ---- ring attention: two rows a rank, D = 64. Queries are zeros, so that a row is the mean of the values that it sees: 1
// of rank 0, 3 of rank 1.

constexpr int64_t kDim = 64;

struct Attended {
  std::vector<float> out, lse;
};

Attended attend(int rank, const std::function<CallReport(const RingAttentionArguments&)>& call,
                const std::function<void(RingAttentionArguments&)>& change = {}) {
  std::vector<uint16_t> q(2 * kDim, 0), k(2 * kDim, kOne), v(2 * kDim, rank == 0 ? kOne : kThree);
  Attended made{std::vector<float>(2 * kDim), std::vector<float>(2)};
  const auto heads = [](std::vector<uint16_t>& data) {
    return HeadsView{data.data(), 1, 2, 1, kDim, 2 * kDim, kDim, kDim};
  };
  RingAttentionArguments arguments{.q = heads(q), .k = heads(k), .v = heads(v)};
  arguments.out_dtype = DataType::fp32;
  arguments.make_results = [&] {
    return RingAttentionArguments::Results{{made.out.data(), 2, kDim, kDim, 1, DataType::fp32},
                                           {made.lse.data(), 1, 2, 2, 1, DataType::fp32}};
  };
  if (change) change(arguments);
  call(arguments);
  return made;
}

// What each of the two rows sees: how many keys, and their mean.
void expect_rows(const Attended& made, const std::vector<std::pair<int, double>>& rows) {
  for (size_t row = 0; row < 2; ++row) {
    const auto [keys, mean] = rows[row];
    for (size_t d = 0; d < kDim; ++d) ASSERT_NEAR(made.out[row * kDim + d], mean, 1e-6) << "row " << row;
    EXPECT_NEAR(made.lse[row], std::log(keys), 1e-6) << "row " << row;
  }
}

TEST(OpFront, EachPartOfARingAttentionCallComesThrough) {
  expect_well(run_two([](Communicator& comm) {
    const int rank = comm.rank();
    const auto call = [&](const RingAttentionArguments& arguments) { return ring_attention(comm, arguments); };
    expect_rows(attend(rank, call), {{4, 2}, {4, 2}});
    const std::vector<std::pair<int, double>> first = {{1, 1}, {2, 1}}, last = {{3, 5.0 / 3}, {4, 2}};
    expect_rows(attend(rank, call, [](auto& a) { a.causal = true; }), rank == 0 ? first : last);
    expect_rows(attend(rank, call,
                       [](auto& a) {
                         a.cu_seqlens = {0, 2, 4};
                       }),
                {{2, rank == 0 ? 1 : 3}, {2, rank == 0 ? 1 : 3}});
    // Blocks 0 and 3 are rank 0's, 1 and 2 rank 1's.
    const std::vector<std::pair<int, double>> outer = {{1, 1}, {4, 2}}, inner = {{2, 2}, {3, 7.0 / 3}};
    expect_rows(attend(rank, call,
                       [](auto& a) {
                         a.causal = true;
                         a.placement = SequencePlacement::zigzag;
                       }),
                rank == 0 ? outer : inner);
    expect_rows(attend(rank, call,
                       [&](auto& a) {
                         a.causal = true;
                         a.placement = SequencePlacement::given;
                         a.positions = rank == 0 ? std::vector<int64_t>{0, 3} : std::vector<int64_t>{1, 2};
                         a.rows = a.kv_rows = {RowCounts::From::exchange, {}};
                       }),
                rank == 0 ? outer : inner);
    EXPECT_THROW(attend(rank, call, [](auto& a) { a.scale = INFINITY; }), Error);
    expect_rows(attend(rank, call), {{4, 2}, {4, 2}});
  }));
}

TEST(OpFront, ARingAttentionHandleFixesMaskPlacementAndPlan) {
  expect_well(run_two([](Communicator& comm) {
    const int rank = comm.rank();
    RingAttention::Shape shape{.rows = {2, 2}, .head_dim = kDim, .out_dtype = DataType::fp32, .causal = true};
    shape.cu_seqlens = {0, 3, 4};
    const RingAttention handle(comm, shape);
    EXPECT_FALSE(handle.explain().empty());
    const auto call = [&](const RingAttentionArguments& arguments) {
      const CallReport report = handle(arguments);
      EXPECT_EQ(report.plan_json, handle.plan_json());
      return report;
    };
    const std::vector<std::pair<int, double>> first = {{1, 1}, {2, 1}}, last = {{3, 5.0 / 3}, {1, 3}};
    for (int i = 0; i < 2; ++i) expect_rows(attend(rank, call), rank == 0 ? first : last);
    const auto other = [](RingAttentionArguments& a) { a.q.rows = a.k.rows = a.v.rows = 1; };
    EXPECT_THROW(attend(rank, call, other), Error);
    expect_rows(attend(rank, call), rank == 0 ? first : last);
  }));
}

TEST(OpFront, AZigzagOfNoRanksIsRefused) {
  EXPECT_EQ(zigzag_rows(7, 2), (std::vector<int64_t>{3, 4}));
  EXPECT_THROW(zigzag_rows(7, 0), Error);
  EXPECT_THROW(zigzag_rows(-1, 2), Error);
}

// ---- MoE dispatch: expert e lies on rank e and multiplies by e + 1. Each rank brings two tokens of two elements r + 1, the
// first one for both experts, the second one for expert 1.

struct Dispatched {
  std::vector<float> y;
  std::vector<int32_t> origins;
  std::vector<int64_t> offsets = std::vector<int64_t>(2, -7);
};

Dispatched dispatch(int rank, const std::function<CallReport(const MoeDispatchArguments&)>& call,
                    const std::function<void(MoeDispatchArguments&)>& change = {}) {
  const uint16_t x_value = rank == 0 ? kOne : kTwo, w_value = rank == 0 ? kOne : kTwo;
  std::vector<uint16_t> x(4, x_value), w(2, w_value);
  const std::vector<int64_t> ids = {0, 1, 1, -1};
  Dispatched made;
  MoeDispatchArguments arguments;
  arguments.x = {x.data(), 2, 2, 2, 1, DataType::bf16};
  arguments.topk_ids = {.data = ids.data(), .tokens = 2, .k = 2, .token_stride = 2, .is_64_bit = true};
  arguments.w1 = {{w.data(), 2, 1, 1, 1, DataType::bf16}};
  arguments.cols = 1;
  arguments.out_dtype = DataType::fp32;
  arguments.make_results = [&](int64_t rows) {
    made.y.assign(static_cast<size_t>(rows), -7);
    made.origins.assign(static_cast<size_t>(3 * rows), -7);
    return MoeDispatchResults{{made.y.data(), rows, 1, 1, 1, DataType::fp32}, made.origins.data(), made.offsets.data()};
  };
  if (change) change(arguments);
  call(arguments);
  return made;
}

// Of so many rows; what is behind those that came is zeros and -1.
void expect_dispatched(int rank, const Dispatched& made, size_t rows) {
  std::vector<float> y = rank == 0 ? std::vector<float>{2, 4} : std::vector<float>{4, 4, 8, 8};
  std::vector<int32_t> origins =
      rank == 0 ? std::vector<int32_t>{0, 0, 0, 1, 0, 0} : std::vector<int32_t>{0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0};
  EXPECT_EQ(made.offsets, (std::vector<int64_t>{0, static_cast<int64_t>(y.size())}));
  y.resize(rows, 0);
  origins.resize(3 * rows, -1);
  EXPECT_EQ(made.y, y);
  EXPECT_EQ(made.origins, origins);
}

TEST(OpFront, EachPartOfAMoeDispatchCallComesThrough) {
  expect_well(run_two([](Communicator& comm) {
    const int rank = comm.rank();
    const auto call = [&](const MoeDispatchArguments& arguments) { return moe_dispatch_matmul(comm, arguments); };
    const size_t rows = rank == 0 ? 2 : 4;
    expect_dispatched(rank, dispatch(rank, call), rows);
    expect_dispatched(rank, dispatch(rank, call, [](auto& a) { a.experts = {0, 1}; }), rows);
    expect_dispatched(rank, dispatch(rank, call, [](auto& a) { a.max_tokens = 5; }), 5);
    const auto tight = [](auto& a) {
      a.max_tokens = 3;
      a.max_source_tokens = 2;
    };
    Dispatched none;
    try {
      none = dispatch(rank, call, tight);
      ADD_FAILURE() << "4 rows in room for 3";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource) << error.what();
    }
    const auto few = [](auto& a) {
      a.max_tokens = 5;
      a.max_source_tokens = 1;
    };
    EXPECT_THROW(dispatch(rank, call, few), Error);
    expect_dispatched(rank, dispatch(rank, call), rows);
  }));
}

TEST(OpFront, AMoeDispatchHandleFixesExpertsLimitsAndPlan) {
  expect_well(run_two([](Communicator& comm) {
    const int rank = comm.rank();
    MoeDispatchGemm::Shape shape{.experts = {0, 1}, .h = 2, .cols = 1, .k = 2, .max_tokens = 5, .plan_json = {}};
    shape.out_dtype = DataType::fp32;
    shape.max_source_tokens = 4;
    const MoeDispatchGemm handle(comm, shape);
    EXPECT_FALSE(handle.explain().empty());
    const auto call = [&](const MoeDispatchArguments& arguments) {
      const CallReport report = handle(arguments);
      EXPECT_EQ(report.plan_json, handle.plan_json());
      return report;
    };
    for (int i = 0; i < 2; ++i) expect_dispatched(rank, dispatch(rank, call), 5);
    const Dispatched none = dispatch(rank, call, [](auto& a) { a.x.rows = a.topk_ids.tokens = 0; });
    EXPECT_EQ(none.offsets, (std::vector<int64_t>{0, 0}));
    EXPECT_EQ(none.y, std::vector<float>(5, 0));
    EXPECT_THROW(dispatch(rank, call, [](auto& a) { a.topk_ids.k = 1; }), Error);
    expect_dispatched(rank, dispatch(rank, call), 5);
  }));
}

}  // namespace
}  // namespace tilewire

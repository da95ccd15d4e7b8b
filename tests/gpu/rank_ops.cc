#include "rank_ops.h"

namespace tilewire {
namespace {

std::vector<int64_t> uneven_rows(int32_t ranks) {
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r)
    rows.push_back(std::vector<int64_t>{300, 0, 217, 130}[static_cast<size_t>(r % 4)]);
  return rows;
}

}  // namespace

std::vector<RankShape> AgGemmRankOp::shapes(int32_t ranks) {
  const auto even = [ranks](int64_t rows) { return std::vector<int64_t>(static_cast<size_t>(ranks), rows); };
  return {{.name = "even", .rows = even(192), .k = 256, .cols = {320}},
          {.name = "uneven, ragged, bias", .rows = uneven_rows(ranks), .k = 136, .cols = {333}, .has_bias = true},
          {.name = "two weights, fp16, [K, N]",
           .rows = even(64),
           .k = 72,
           .cols = {96, 40},
           .type = DataType::fp16,
           .is_b_n_major = true},
          {.name = "no rows", .rows = even(0), .k = 64, .cols = {64}},
          {.name = "one row", .rows = even(1), .k = 8, .cols = {8}},
          {.name = "rows not said, fp32 results",
           .rows = even(65),
           .k = 136,
           .cols = {333},
           .out_type = DataType::fp32,
           .rows_from = RowCounts::From::same},
          {.name = "rows exchanged, fp16 results of bf16, bias",
           .rows = uneven_rows(ranks),
           .k = 72,
           .cols = {40},
           .out_type = DataType::fp16,
           .has_bias = true,
           .rows_from = RowCounts::From::exchange},
          {.name = "K of 0, bias", .rows = uneven_rows(ranks), .cols = {24}, .has_bias = true},
          {.name = "gathered rows, two weights, fp32 results",
           .rows = uneven_rows(ranks),
           .k = 75,
           .cols = {96, 7},
           .out_type = DataType::fp32,
           .wants_gathered = true},
          {.name = "arenas grow", .rows = even(700), .k = 1024, .cols = {128}}};
}

// Own rows go to each receiver once, and so does what is forwarded.
void AgGemmRankOp::expect_moved(const CallReport& report, const Topology& t, Rank me, const RankShape& shape) {
  const int64_t shard = shape.rows[static_cast<size_t>(me.value)] * shape.k * size_bytes(shape.type);
  const int64_t peers = t.ranks_on(t.node(me)) - 1;
  int64_t entered = 0;  // of other nodes' ranks, here
  for (int32_t r = 0; r < t.ranks; ++r) entered += !t.same_node(Rank{r}, me) && t.entry_rank(Rank{r}, me) == me ? 1 : 0;
  expect(report.node_bytes == peers * (1 + entered) * shard, "rows go once to each rank of the node");
  expect(report.network_bytes == (t.nodes - 1) * shard, "and once to each other node");
  expect(report.copy_bytes <= shard, "and not twice into the own memory");
}

}  // namespace tilewire

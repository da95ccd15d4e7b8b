#include "rank_ops.h"

namespace tilewire {
namespace {

std::vector<int64_t> even_rows(int32_t ranks, int64_t rows) {
  return std::vector<int64_t>(static_cast<size_t>(ranks), rows);
}

// `of_four` over and over again.
std::vector<int64_t> in_turn(int32_t ranks, const std::vector<int64_t>& of_four) {
  std::vector<int64_t> numbers;
  numbers.reserve(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r) numbers.push_back(of_four[static_cast<size_t>(r % 4)]);
  return numbers;
}

std::vector<int64_t> uneven_rows(int32_t ranks) { return in_turn(ranks, {300, 0, 217, 130}); }

constexpr int64_t kEvenRows = 192;  // of each rank, in shapes()[0]

int32_t peers_of(const Topology& t, Rank me) { return t.ranks_on(t.node(me)) - 1; }

std::vector<int32_t> widths_of(const Topology& t) {
  std::vector<int32_t> widths;
  widths.reserve(static_cast<size_t>(t.nodes));
  for (int32_t n = 0; n < t.nodes; ++n) widths.push_back(t.ranks_on(Node{n}));
  return widths;
}

// Of other nodes' ranks, whose rows enter the node here.
int32_t entering(const Topology& t, Rank me) {
  int32_t count = 0;
  for (int32_t r = 0; r < t.ranks; ++r) count += !t.same_node(Rank{r}, me) && t.entry_rank(Rank{r}, me) == me ? 1 : 0;
  return count;
}

// Own rows go to each receiver once, and so does what is forwarded; `shard` bytes of each rank.
void expect_gathered(const CallReport& report, const Topology& t, Rank me, int64_t shard) {
  expect(report.node_bytes == peers_of(t, me) * (1 + entering(t, me)) * shard, "rows go once to each rank of the node");
  expect(report.network_bytes == (t.nodes - 1) * shard, "and once to each other node");
  expect(report.copy_bytes <= shard, "and not twice into the own memory");
}

std::set<std::string> gather_roles(const Topology& t, Rank me) {
  std::set<std::string> roles{"compute"};
  if (peers_of(t, me) > 0) roles.insert("push");
  if (t.nodes > 1) roles.insert("send");
  if (peers_of(t, me) > 0 && entering(t, me) > 0) roles.insert("forward");
  return roles;
}

}  // namespace

std::vector<RankShape> AgGemmRankOp::shapes(const Topology& t) {
  const int32_t ranks = t.ranks;
  const auto even = [ranks](int64_t rows) { return even_rows(ranks, rows); };
  return {{.name = "even", .rows = even(kEvenRows), .k = 256, .cols = {320}},
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

RankShape AgGemmRankOp::new_shape(const Topology& t) {
  return {.name = "", .rows = even_rows(t.ranks, 8), .k = 64, .cols = {24}};
}

void AgGemmRankOp::expect_moved(const CallReport& report, const Topology& t, Rank me) {
  expect_gathered(report, t, me, kEvenRows * shapes(t)[0].k * size_bytes(DataType::bf16));
}

std::set<std::string> AgGemmRankOp::roles(const Topology& t, Rank me) { return gather_roles(t, me); }

std::vector<ReductionSize> ReductionRankOp::shapes(const Topology& t) {
  const int32_t ranks = t.ranks;
  const auto even = [ranks](int64_t rows) { return even_rows(ranks, rows); };
  constexpr DataType kFp16 = DataType::fp16, kFp32 = DataType::fp32;
  std::vector<ReductionSize> all{
      {.name = "even", .rows = even(kEvenRows), .k = {256}, .n = 320},
      {.name = "uneven, ragged, bias and residual",
       .rows = uneven_rows(ranks),
       .k = {136},
       .n = 333,
       .has_bias = true,
       .has_residual = true},
      {.name = "depths of their own, fp16, [K, N]",
       .rows = even(64),
       .k = in_turn(ranks, {72, 0, 136, 8}),
       .n = 96,
       .type = kFp16,
       .wire = kFp16,
       .out = kFp16,
       .is_b_n_major = true},
      {.name = "no rows", .rows = even(0), .k = {64}, .n = 64},
      {.name = "one row in all", .rows = in_turn(ranks, {1, 0, 0, 0}), .k = {8}, .n = 8},
      {.name = "fp32 results over fp32", .rows = even(65), .k = {136}, .n = 333, .wire = kFp32, .out = kFp32},
      {.name = "K of 0, bias", .rows = uneven_rows(ranks), .k = {0}, .n = 24, .has_bias = true},
      {.name = "arenas grow", .rows = even(700), .k = {1024}, .n = 512}};
  // Which sums are rounded depends on who shares a node.
  for (ReductionSize& size : all) size.widths = widths_of(t);
  return all;
}

ReductionSize ReductionRankOp::new_shape(const Topology& t) {
  return {.name = "", .rows = even_rows(t.ranks, 8), .k = {64}, .n = 24, .widths = widths_of(t)};
}

// A product of each row goes to who takes it, and a sum of each of the rail's to its owner.
void GemmRsRankOp::expect_moved(const CallReport& report, const Topology& t, Rank me) {
  const int64_t shard = kEvenRows * shapes(t)[0].n * size_bytes(DataType::bf16);
  int64_t taken = 0, sent = 0;  // owners
  for (int32_t r = 0; r < t.ranks; ++r) {
    const bool is_mine = t.rail_partner(Rank{r}, t.node(me)) == me;
    taken += is_mine ? 1 : 0;
    sent += is_mine && !t.same_node(Rank{r}, me) ? 1 : 0;
  }
  expect(report.node_bytes == (t.ranks - taken) * shard, "products go once to who takes them");
  expect(report.network_bytes == sent * shard, "and the sums of the rail once to their owners");
  expect(report.copy_bytes == (taken + sent) * shard, "and what is taken here stays here");
}

std::set<std::string> GemmRsRankOp::roles(const Topology& t, Rank me) {
  std::set<std::string> roles{"compute", "finish"};
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (!t.same_node(Rank{r}, me) && t.rail_partner(Rank{r}, t.node(me)) == me) roles.insert({"reduce", "send"});
  }
  return roles;
}

// How much depends on the form; that it is the report of CPU ranks is tested there.
void GemmArRankOp::expect_moved(const CallReport& report, const Topology& t, Rank me) {
  const int64_t whole = t.ranks * kEvenRows * shapes(t)[0].n * size_bytes(DataType::bf16);
  const bool has_peers = peers_of(t, me) > 0;
  expect((report.node_bytes > 0) == has_peers, "products and results go to ranks of the node, where there are any");
  expect((report.network_bytes > 0) == (t.nodes > 1), "and sums and results to other nodes");
  expect(report.copy_bytes > 0 && report.network_bytes <= 2 * (t.nodes - 1) * whole, "and not twice");
}

// Of either form; which one it is the plan says.
std::set<std::string> GemmArRankOp::roles(const Topology& t, Rank) {
  std::set<std::string> roles{"compute", "finish"};
  if (t.nodes > 1) roles.insert("send");
  return roles;
}

std::vector<AttentionRankShape> AttentionRankOp::shapes(const Topology& t) {
  using attention::Placement;
  const int32_t ranks = t.ranks;
  const auto even = [ranks](int64_t rows) { return even_rows(ranks, rows); };
  return {{.name = "even", .rows = even(kEvenRows)},
          {.name = "uneven, causal, heads of 64, two batch entries, fp16",
           .rows = uneven_rows(ranks),
           .kv_rows = in_turn(ranks, {130, 300, 0, 217}),
           .batch = 2,
           .q_heads = 3,
           .kv_heads = 1,
           .head_dim = 64,
           .type = DataType::fp16,
           .is_causal = true},
          {.name = "rows not said, laid out as [B, H, S, D]",
           .rows = even(65),
           .q_heads = 2,
           .kv_heads = 1,
           .is_bhsd = true,
           .rows_from = RowCounts::From::same},
          {.name = "zigzag, causal",
           .rows = attention::zigzag_rows(ranks * 201, ranks),
           .is_causal = true,
           .placement = Placement::zigzag},
          packed(t, 0),
          {.name = "positions given, causal, rows exchanged",
           .rows = in_turn(ranks, {150, 64, 1, 90}),
           .is_causal = true,
           .placement = Placement::given,
           .rows_from = RowCounts::From::exchange},
          {.name = "no rows", .rows = even(0)},
          {.name = "no keys", .rows = even(70), .kv_rows = even(0)},
          {.name = "one row", .rows = in_turn(ranks, {1, 0, 0, 0}), .q_heads = 8, .kv_heads = 1},
          {.name = "arenas grow", .rows = even(400), .q_heads = 8, .kv_heads = 8, .is_causal = true}};
}

AttentionRankShape AttentionRankOp::new_shape(const Topology& t) {
  return {.name = "", .rows = even_rows(t.ranks, 8), .q_heads = 1, .kv_heads = 1, .head_dim = 64};
}

// Documents that cross ranks, an empty one, and pads.
AttentionRankShape AttentionRankOp::packed(const Topology& t, int64_t number) {
  const int64_t all = int64_t{t.ranks} * 100;
  return {.name = "documents " + std::to_string(number),
          .rows = even_rows(t.ranks, 100),
          .head_dim = 64,
          .is_causal = true,
          .documents = {0, 3 + number, 3 + number, all / 2 + 7 * number, all - 5}};
}

// Keys and values.
void AttentionRankOp::expect_moved(const CallReport& report, const Topology& t, Rank me) {
  const Shape shape = shapes(t)[0];
  expect_gathered(report, t, me, kEvenRows * shape.kv_heads * 2 * shape.head_dim * size_bytes(shape.type));
}

std::set<std::string> AttentionRankOp::roles(const Topology& t, Rank me) { return gather_roles(t, me); }

std::vector<MoeRankShape> MoeDispatchRankOp::shapes(const Topology& t) {
  const int32_t ranks = t.ranks;
  const auto uneven = in_turn(ranks, {130, 70, 33, 90});
  const std::vector<int32_t> on_last(3, ranks - 1);
  return {
      {.name = "at most so many rows",
       .size = {.name = "", .tokens = uneven, .rank_of_expert = dealt(9, ranks), .top_k = 3, .h = 136, .cols = 264}},
      {.name = "rows counted, ids of 64 bits, ragged",
       .size = {.name = "",
                .tokens = in_turn(ranks, {130, 0, 70, 1}),
                .rank_of_expert = dealt(7, ranks),
                .top_k = 2,
                .h = 75,
                .cols = 333,
                .is_64_bit = true},
       .is_counted = true},
      {.name = "fp16, weights as [I, H]",
       .size = {.name = "",
                .tokens = even_rows(ranks, 64),
                .rank_of_expert = dealt(12, ranks),
                .top_k = 4,
                .h = 72,
                .cols = 96,
                .type = DataType::fp16,
                .is_b_n_major = false}},
      {.name = "no tokens",
       .size = {.name = "",
                .tokens = even_rows(ranks, 0),
                .rank_of_expert = dealt(4, ranks),
                .top_k = 2,
                .h = 64,
                .cols = 64,
                .max_tokens = 5}},
      {.name = "a token a rank, rows counted",
       .size = {.name = "",
                .tokens = even_rows(ranks, 1),
                .rank_of_expert = dealt(16, ranks),
                .top_k = 2,
                .h = 8,
                .cols = 8},
       .is_counted = true},
      {.name = "all experts on the last rank",
       .size = {.name = "", .tokens = uneven, .rank_of_expert = on_last, .top_k = 2, .h = 64, .cols = 40}},
      {.name = "H of 0", .size = {.name = "", .tokens = uneven, .rank_of_expert = dealt(5, ranks), .h = 0, .cols = 24}},
      {.name = "arenas grow",
       .size = {.name = "",
                .tokens = even_rows(ranks, 700),
                .rank_of_expert = dealt(8, ranks),
                .top_k = 2,
                .h = 1024,
                .cols = 72}}};
}

MoeRankShape MoeDispatchRankOp::new_shape(const Topology& t) {
  return {.name = "",
          .size = {.name = "",
                   .tokens = even_rows(t.ranks, 8),
                   .rank_of_expert = dealt(4, t.ranks),
                   .top_k = 1,
                   .h = 16,
                   .cols = 24}};
}

// The kernel alone knows how much.
void MoeDispatchRankOp::expect_moved(const CallReport& report, const Topology&, Rank) {
  expect(report.node_bytes == 0 && report.network_bytes == 0 && report.copy_bytes == 0, "no bytes are said");
}

std::set<std::string> MoeDispatchRankOp::roles(const Topology& t, Rank me) {
  std::set<std::string> roles{"compute", "push"};
  if (t.nodes > 1) roles.insert({"pack", "send"});
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (!t.same_node(Rank{r}, me) && t.entry_rank(Rank{r}, me) == me) roles.insert("forward");
  }
  return roles;
}

}  // namespace tilewire

#include "ops/moe_dispatch/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "operands/matrix_checks.h"
#include "base/hash.h"

namespace tilewire::moe_dispatch {
namespace {

constexpr int32_t kMostExperts = 4096, kMostTopK = 64;

// How many experts each rank has where that is the same and they lie in rank order, or 0.
int64_t even_experts(const std::vector<int32_t>& rank_of_expert) {
  const auto experts = static_cast<int64_t>(rank_of_expert.size());
  if (experts == 0) return 0;
  const int64_t ranks = int64_t{rank_of_expert.back()} + 1;
  if (ranks < 1 || experts % ranks != 0) return 0;  // the planner refuses it, after the text
  for (int64_t e = 0; e < experts; ++e) {
    if (rank_of_expert[static_cast<size_t>(e)] != e / (experts / ranks)) return 0;
  }
  return experts / ranks;
}

// Placements that differ have texts that differ.
std::string experts_text(const std::vector<int32_t>& rank_of_expert) {
  const int64_t even = even_experts(rank_of_expert);
  if (even > 0)
    return fmt::format("{} experts, {} on each of {} ranks", rank_of_expert.size(), even,
                       static_cast<int64_t>(rank_of_expert.size()) / even);
  if (rank_of_expert.size() <= 32) return fmt::format("experts on ranks [{}]", fmt::join(rank_of_expert, ", "));
  const std::string all = fmt::format("{}", fmt::join(rank_of_expert, ","));
  return fmt::format("{} experts, placement {:016x}", rank_of_expert.size(), hash64(all));
}

}  // namespace

int64_t Problem::result_bytes(Rank) const { return result_rows * cols * size_bytes(out_dtype); }

void Problem::validate() const {
  const auto refuse = [](const char* what, std::string values, std::string limit) {
    refuse_argument(kCallName, what, std::move(values), std::move(limit));
  };
  if (experts() < 1 || rank_of_expert.size() > static_cast<size_t>(kMostExperts)) {
    refuse("wrong number of experts", fmt::format("{} experts", rank_of_expert.size()),
           fmt::format("1 to {}", kMostExperts));
  }
  if (dtype == DataType::fp32) refuse("x has the wrong dtype", "x is fp32", "must be bf16 or fp16");
  if (h < 0) refuse("negative H", fmt::format("h = {}", h), ">= 0");
  if (cols < 0) refuse("negative columns of a weight", fmt::format("{} columns", cols), ">= 0");
  if (most_rows < 0) refuse("negative max_tokens", fmt::format("max_tokens = {}", most_rows), ">= 0");
  if (planned_tokens < 0 || planned_tokens > most_tokens) {
    refuse("planned for too many tokens", fmt::format("{} tokens", planned_tokens),
           fmt::format("0 to {}", most_tokens));
  }
  check_number_of_tokens(most_tokens, top_k);
  checked_mul(checked_mul(std::max(most_rows, most_tokens), std::max<int64_t>(1, std::max(h, cols))), 4);
}

void check_number_of_tokens(int64_t tokens, int32_t top_k) {
  if (top_k < 1 || top_k > kMostTopK) {
    refuse_argument(kCallName, "wrong number of experts for a token", fmt::format("k = {}", top_k),
                    fmt::format("1 to {}", kMostTopK));
  }
  if (tokens <= INT32_MAX / top_k) return;
  refuse_argument(kCallName, "too many tokens", fmt::format("{} tokens of {} experts each", tokens, top_k),
                  fmt::format("at most {} in all", int64_t{INT32_MAX}));
}

CallParts Problem::agreed() const {
  CallParts parts = {{fmt::format("tokens of H = {}, k = {}", h, top_k)},
                     {to_string(dtype)},
                     {experts_text(rank_of_expert), "pass the same experts= on all ranks"}};
  if (counts_only) {
    parts.push_back({"counts alone", "pass max_tokens= on all ranks, or on none"});
    return parts;
  }
  parts.push_back({fmt::format("at most {} rows a rank", most_rows), "pass the same max_tokens= on all ranks"});
  parts.push_back(
      {fmt::format("at most {} tokens a rank", most_tokens), "pass the same max_source_tokens= on all ranks"});
  parts.push_back({fmt::format("planned for {}", planned_tokens)});
  return parts;
}

std::string Problem::text() const {
  if (counts_only) return text_of(agreed());
  return fmt::format("{}, I = {} -> {}", text_of(agreed()), cols, to_string(out_dtype));
}

Problem limited_problem(Problem p, int64_t max_tokens, std::optional<int64_t> max_source_tokens) {
  p.most_rows = p.result_rows = max_tokens;
  p.most_tokens = max_source_tokens.value_or(max_tokens);
  if (p.planned_tokens == 0)
    p.planned_tokens = rounded_size(div_up(std::max<int64_t>(0, max_tokens), std::max(1, p.top_k)));
  p.planned_tokens = std::min(p.planned_tokens, p.most_tokens);
  return p;
}

int64_t rounded_size(int64_t size) {
  if (size <= 16) return size <= 0 ? size : 16;
  const int64_t step = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size))) / 16;
  return round_up(size, step);
}

}  // namespace tilewire::moe_dispatch

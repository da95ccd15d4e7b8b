#include "ops/moe_dispatch/shared_plan.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "schedule/wire.h"

namespace tilewire::moe_dispatch {
namespace {

constexpr int32_t kTriedBlocks = 4;
constexpr int64_t kLeastBlock = 16;
constexpr int64_t kChunkBytes = 128 << 10;  // of a command, as near as whole tokens come

int64_t chunks_of_block(const PlanChoice& c) { return div_up(c.block_tokens, c.chunk_tokens); }

// More tokens a command where there are not words for so many.
int64_t tried_chunk(const Problem& p, int64_t block, const PlanContext& x) {
  const int64_t pitch = buffers_of(p, PlanChoice{.cursors = {}}, x).token_pitch;
  int64_t chunk = std::clamp<int64_t>(kChunkBytes / std::max<int64_t>(1, pitch), 1, block);
  while (chunk < block && div_up(p.most_tokens, block) * div_up(block, chunk) > x.arena.flags.max_chunks) {
    chunk = std::min(2 * chunk, block);
  }
  return chunk;
}

}  // namespace

int64_t most_rounds(const Problem& p, const PlanChoice& c, const PlanContext& context) {
  if (p.counts_only) return 1;
  const int64_t by_words = context.arena.flags.max_chunks / std::max(c.pieces, chunks_of_block(c));
  return std::min(by_words, div_up(p.most_tokens, c.block_tokens));
}

void check_placement(const Problem& p, const PlanContext& x) {
  for (size_t e = 0; e < p.rank_of_expert.size(); ++e) {
    if (p.rank_of_expert[e] >= 0 && p.rank_of_expert[e] < x.topology.ranks) continue;
    throw Error(ErrorKind::invalid_argument,
                {.what = "an expert is on no rank",
                 .where = kCallName,
                 .values = fmt::format("experts[{}] = {}", e, p.rank_of_expert[e]),
                 .limit = fmt::format("0 to {}, for {} ranks", x.topology.ranks - 1, x.topology.ranks)});
  }
}

std::string reason_against_shared(const Problem& p, const PlanChoice& c, const PlanContext& x) {
  const Buffers buffers = buffers_of(p, c, x);
  if (x.topology.nodes > 1 && buffers.record_bytes > CommandLimits::kChunkBytes) {
    return fmt::format("counts of {} rounds are {} bytes, at most {}", most_rounds(p, c, x), buffers.record_bytes,
                       CommandLimits::kChunkBytes);
  }
  if (p.counts_only) return "";
  if (p.most_tokens > most_rounds(p, c, x) * c.block_tokens) {
    return fmt::format("{} tokens are {} rounds of {} words of a source, there are {}", p.most_tokens,
                       div_up(p.most_tokens, c.block_tokens), std::max(c.pieces, chunks_of_block(c)),
                       x.arena.flags.max_chunks);
  }
  if (buffers.slot_rows > INT32_MAX) return fmt::format("{} rows in a round", buffers.slot_rows);
  const int64_t chunk_bytes = checked_mul(std::min(c.chunk_tokens, c.block_tokens), buffers.token_pitch);
  if (x.topology.nodes > 1 && chunk_bytes > CommandLimits::kChunkBytes) {
    return fmt::format("chunks of {} bytes, at most {}", chunk_bytes, CommandLimits::kChunkBytes);
  }
  return "";
}

std::vector<PlanChoice> shared_choices(const Problem& p, const PlanContext& x) {
  const int64_t tokens = std::max<int64_t>(1, p.planned_tokens);
  std::vector<PlanChoice> choices;
  int32_t fitting = 0;
  for (int64_t rounds = 1; fitting < kTriedBlocks; rounds *= 2) {
    PlanChoice choice{.block_tokens = div_up(tokens, rounds), .window = rounds == 1 ? 1 : 2, .cursors = {}};
    choice.chunk_tokens = tried_chunk(p, choice.block_tokens, x);
    fitting += reason_against_reserve(buffers_of(p, choice, x).end(), x).empty() ? 1 : 0;
    for (const auto& [local_first, pieces] : {std::pair{true, 1}, {false, 1}, {false, 4}}) {
      choice.local_first = local_first;
      choice.pieces = pieces;
      if (!local_first || x.topology.nodes > 1) choices.push_back(choice);
    }
    if (choice.block_tokens <= kLeastBlock || p.counts_only) break;
  }
  return choices;
}

}  // namespace tilewire::moe_dispatch

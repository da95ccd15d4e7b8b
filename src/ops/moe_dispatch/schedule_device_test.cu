// The iterators of MoE dispatch compiled for the GPU. Where there is a GPU, one thread walks every role of every rank
// and must see what the host sees; elsewhere that it compiles is the test.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "ops/moe_dispatch/row_moves.h"
#include "ops/moe_dispatch/sample_routing.h"
#include "ops/moe_dispatch/schedule.h"
#include "testing/schedule_walk.cuh"

namespace tilewire::moe_dispatch {
namespace {

// Where each row goes (row_moves.h): a kernel finds it as the host does.
TILEWIRE_HD constexpr void hash_move(const RowMove& move, WalkHash& hash) {
  hash.add(static_cast<uint64_t>(move.to.value));
  hash.add(static_cast<uint64_t>(move.row));
  hash.add(static_cast<uint64_t>(move.origin.token));
  hash.add(static_cast<uint64_t>(move.origin.slot));
}
}  // namespace

TILEWIRE_HD constexpr void hash_rows(const Schedule& s, const PushWork& w, WalkHash& hash) {
  for (int32_t i = 0; i < rows_of(s, w); ++i) hash_move(row_of(s, w, i), hash);
}
TILEWIRE_HD constexpr void hash_rows(const Schedule& s, const PackWork& w, WalkHash& hash) {
  for (int32_t i = 0; !w.is_gate && i < rows_of(s, w); ++i) {
    const int32_t token = token_of(s, w, i);
    hash.add(static_cast<uint64_t>(token));
    for (int32_t slot = 0; slot < s.top_k; ++slot) {
      const HeaderSlot at = header_of(s, w.chunk.to, token, slot);
      hash.add(static_cast<uint64_t>(at.place));
      hash.add(static_cast<uint64_t>(at.number));
    }
  }
}
TILEWIRE_HD constexpr void hash_rows(const Schedule& s, const ForwardWork& w, WalkHash& hash) {
  if (w.is_gate || w.is_record) return;
  for (int32_t place = 0; place < s.routing->places; ++place) hash_move(row_of(s, w, {}, {place, w.number}), hash);
}
TILEWIRE_HD constexpr void hash_rows(const Schedule& s, const TileWork& w, WalkHash& hash) {
  for (int32_t p = w.first; !w.is_gate && !w.is_round_end && p <= w.last; ++p) {
    const ResultRows results = results_of(s, w, p);
    hash.add(static_cast<uint64_t>(results.rows.begin));
    hash.add(static_cast<uint64_t>(results.rows.end));
    hash.add(static_cast<uint64_t>(results.result));
  }
}

namespace {

// The routing's tables lie behind it, on a GPU as on the host: they go there as they are.
Schedule on_device(Schedule s) {
  const auto ranks = static_cast<size_t>(s.ranks()), experts = static_cast<size_t>(s.experts.experts);
  const auto* from = reinterpret_cast<const char*>(s.routing);
  auto* block = const_cast<char*>(to_device(from, static_cast<size_t>(s.buffers.tables_bytes)));
  Routing moved = *s.routing;
  const auto* head = reinterpret_cast<const char*>(s.routing);
  for_each_table(moved, s.buffers.tables, [&]<class T>(T*& table, int64_t) {
    table = reinterpret_cast<T*>(block + (reinterpret_cast<const char*>(table) - head));
  });
  cudaMemcpy(block, &moved, sizeof(moved), cudaMemcpyHostToDevice);
  s.routing = reinterpret_cast<Routing*>(block);
  s.experts.first = to_device(s.experts.first, ranks + 1);
  s.experts.place_of = to_device(s.experts.place_of, experts);
  s.experts.rank_of = to_device(s.experts.rank_of, experts);
  s.source_at = to_device(s.source_at, ranks);
  s.position_of = to_device(s.position_of, ranks);
  s.frame.topology = to_device(s.frame.topology);
  return s;
}

// With lists of the own rows, which a plan is priced without.
class ListedTables : public SampledTables {
 public:
  ListedTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context)
      : SampledTables(problem, choice, context) {
    const Schedule s = schedule(1);
    const std::vector<int32_t> ids = sample_routes(problem, context.me);
    const TokenRoutes routes{ids.data(), problem.planned_tokens, problem.top_k};
    std::vector<int64_t> seen(static_cast<size_t>(context.topology.nodes));
    std::vector<int32_t> record(static_cast<size_t>(s.record_words(s.rounds_of_tokens(s.tokens))));
    count_routes(s, routes, seen, record);
    list_routes(s, routes, record);
  }
};

WalkOutcome run() {
  Problem problem{.rank_of_expert = {0, 1, 2, 3, 4, 0, 4, 1, 3, 3, 0}, .h = 40, .top_k = 3, .most_rows = 400};
  problem.most_tokens = problem.planned_tokens = 33;
  problem.cols = 50;
  const PlanChoice choice{.block_tokens = 6,
                          .window = 2,
                          .chunk_tokens = 4,
                          .pieces = 2,
                          .tile_rows = 4,
                          .tile_cols = 16,
                          .raster_rows = 2,
                          .workers = 3,
                          .cursors = {}};
  return test_walks<ListedTables>(problem, std::vector{choice}, on_device);
}

}  // namespace
}  // namespace tilewire::moe_dispatch

int main() {
  const tilewire::WalkOutcome outcome = tilewire::moe_dispatch::run();
  std::puts(outcome.text.c_str());
  return outcome.status;
}

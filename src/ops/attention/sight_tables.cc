#include "ops/attention/sight_tables.h"

#include <algorithm>
#include <numeric>

#include "ops/attention/cost.h"

namespace tilewire::attention {
namespace {

template <class T>
int64_t bytes_of(const std::vector<T>& v) {
  return static_cast<int64_t>(v.capacity() * sizeof(T));
}

template <class Visit>
void for_each_position(const Positions& positions, const Visit& visit) {
  for (const PositionRun& run : positions) {
    for (int64_t i = 0; i < run.count; ++i) visit(run.begin + i);
  }
}

// The runs of a source in order, cut where the next of its blocks begins.
class RunCutter {
 public:
  explicit RunCutter(const Positions& positions) : at_(positions.begin()) {}

  // visit(run) for those of the next `rows` rows.
  template <class Visit>
  void take(int64_t rows, const Visit& visit) {
    while (rows > 0) {
      const int64_t count = std::min(rows, at_->count - used_);
      visit(PositionRun{at_->begin + used_, count});
      rows -= count;
      used_ += count;
      if (used_ < at_->count) continue;
      ++at_;
      used_ = 0;
    }
  }

 private:
  Positions::const_iterator at_;
  int64_t used_ = 0;  // rows of the run at hand
};

}  // namespace

void SightTables::settle(const Problem& problem, Schedule& s) {
  set_keys(problem, s);
  set_queries(problem, s);
  set_wanted(problem, s);
  point(s);
  set_tiles(s);
  point(s);
}

int64_t SightTables::bytes() const {
  return bytes_of(query_spans_) + bytes_of(key_positions_) + bytes_of(wanted_) + bytes_of(tile_spans_) +
         bytes_of(block_keys_) + bytes_of(block_runs_) + bytes_of(first_run_) + bytes_of(tile_blocks_) +
         bytes_of(tile_order_) + bytes_of(tile_work_);
}

void SightTables::set_keys(const Problem& problem, const Schedule& s) {
  key_positions_.clear();
  block_keys_.clear();
  block_runs_.clear();
  first_run_.assign(1, 0);
  const std::vector<Positions> positions = problem.kv_positions();
  for (int32_t r = 0; r < s.ranks(); ++r) {
    const Positions& of_rank = positions[static_cast<size_t>(r)];
    for_each_position(of_rank, [&](int64_t position) { key_positions_.push_back(position); });
    RunCutter runs(of_rank);
    for (int32_t block = 0; block < s.blocks_of(Rank{r}); ++block) {
      KeyBounds& bounds = block_keys_.emplace_back();
      runs.take(s.blocks.rows({Rank{r}, Chunk{block}}).rows(), [&](PositionRun run) {
        bounds.add(run.begin);
        bounds.add(run.begin + run.count - 1);
        block_runs_.push_back(run);
      });
      first_run_.push_back(block_runs_.size());
    }
  }
}

void SightTables::set_queries(const Problem& problem, const Schedule& s) {
  const MaskRule mask = problem.mask();
  query_spans_.clear();
  tile_spans_.assign(static_cast<size_t>(s.tiles), {});
  for_each_position(problem.positions()[static_cast<size_t>(s.me().value)], [&](int64_t position) {
    const auto row = static_cast<int64_t>(query_spans_.size());
    query_spans_.push_back(mask.span_of(position));
    tile_spans_[static_cast<size_t>(row / s.tile_rows)].add(query_spans_.back());
  });
}

// Rows of a striped sequence are a run each, so each block's runs are found once for all ranks that may look at them, and
// looked at only where its bounds do not say it all.
void SightTables::set_wanted(const Problem& problem, const Schedule& s) {
  const MaskRule mask = problem.mask();
  const std::vector<Positions> queries = problem.positions();
  wanted_.clear();
  for (int32_t r = 0; r < s.ranks(); ++r) {
    const std::vector<KeySpan> seen = mask.seen_by(queries[static_cast<size_t>(r)]);
    for (size_t block = 0; block < block_keys_.size(); ++block) {
      const KeyBounds& bounds = block_keys_[block];
      const auto first = block_runs_.begin() + static_cast<ptrdiff_t>(first_run_[block]);
      const auto end = block_runs_.begin() + static_cast<ptrdiff_t>(first_run_[block + 1]);
      const bool is_wanted = problem.q_heads > 0 && first != end &&
                             is_seen(seen, {bounds.least, bounds.most - bounds.least + 1}) &&
                             std::any_of(first, end, [&](PositionRun run) { return is_seen(seen, run); });
      wanted_.push_back(is_wanted ? 1 : 0);
    }
  }
}

void SightTables::set_tiles(const Schedule& s) {
  tile_blocks_.clear();
  tile_work_.clear();
  for (int32_t tile = 0; tile < s.tiles; ++tile) {
    double work = 0;
    for (int32_t r = 0; r < s.ranks(); ++r) {
      BlockRange& range = tile_blocks_.emplace_back();
      for (int32_t block = 0; block < s.blocks_of(Rank{r}); ++block) {
        const ChunkRef c{Rank{r}, Chunk{block}};
        if (!s.is_looked_at(tile, c)) continue;
        if (range.count == 0) range.first = block;
        range.count = block + 1 - range.first;
        work += scores_of(s, tile, s.blocks.global(c));
      }
    }
    tile_work_.push_back(work);
  }
  tile_order_.resize(static_cast<size_t>(s.tiles));
  std::iota(tile_order_.begin(), tile_order_.end(), 0);
  std::stable_sort(tile_order_.begin(), tile_order_.end(), [&](int32_t a, int32_t b) {
    return tile_work_[static_cast<size_t>(a)] > tile_work_[static_cast<size_t>(b)];
  });
}

void SightTables::point(Schedule& s) const {
  s.wanted = wanted_.data();
  s.tile_spans = tile_spans_.data();
  s.block_keys = block_keys_.data();
  s.tile_blocks = tile_blocks_.data();
  s.tile_order = tile_order_.data();
  s.query_spans = query_spans_.data();
  s.key_positions = key_positions_.data();
}

}  // namespace tilewire::attention

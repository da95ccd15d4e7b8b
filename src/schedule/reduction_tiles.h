// How kernels walk a reduction: chunks cut into what a cluster computes at once, and teams of warps that add up chunks
// together.
#pragma once

#include <cstdint>

#include "schedule/reduction_roles.h"

namespace tilewire {

// The rows and columns that the tiles of a cluster have together.
struct WorkSize {
  int32_t rows = 1;
  int32_t cols = 1;
};

// A role that makes partial sums, in works: those of a chunk one after the other, by rows, then by columns. Each waits for
// what the chunk waits for, as others may do the rest of it.
template <class ChunkRole, class Schedule>
class PartialTileRole {
 public:
  using Chunks = ChunkRole;
  struct Work : ChunkRole::Work {
    RowRange rows;        // as many as a work has, of the whole matrix: some may be past the chunk
    ColumnRange columns;  // likewise
    RowRange chunk_rows;
    ColumnRange chunk_columns;
    int32_t works = 1;  // of the chunk
    int64_t tile = 0;   // number of the chunk, for traces
  };

  TILEWIRE_HD constexpr PartialTileRole(const Schedule& s, int32_t worker, WorkSize size)
      : s_(s), role_(s, worker), size_(size) {}

  TILEWIRE_HD constexpr bool next(Work& w) {
    if (at_ == works_ && !begin_chunk()) return false;
    static_cast<typename ChunkRole::Work&>(w) = chunk_;
    w.chunk_rows = s_.map.rows(chunk_.chunk);
    w.chunk_columns = s_.map.columns(chunk_.chunk);
    const int32_t row_works = cuts(w.chunk_rows.rows(), size_.rows);
    w.rows.begin = w.chunk_rows.begin + int64_t{at_ % row_works} * size_.rows;
    w.rows.end = w.rows.begin + size_.rows;
    w.columns.begin = w.chunk_columns.begin + int64_t{at_ / row_works} * size_.cols;
    w.columns.end = w.columns.begin + size_.cols;
    w.works = works_;
    w.tile = s_.map.global(chunk_.chunk);
    ++at_;
    return true;
  }
  TILEWIRE_HD constexpr Need need(const Work& w, int32_t i) const { return role_.need(w, i); }
  // When all works of the chunk are done.
  TILEWIRE_HD constexpr Publish publish(const Work& w, int32_t i) const { return role_.publish(w, i); }

 private:
  TILEWIRE_HD static constexpr int32_t cuts(int64_t size, int32_t of) {
    return static_cast<int32_t>((size + of - 1) / of);
  }
  TILEWIRE_HD constexpr bool begin_chunk() {
    if (!role_.next(chunk_)) return false;
    works_ = cuts(s_.map.rows(chunk_.chunk).rows(), size_.rows) * cuts(s_.map.columns(chunk_.chunk).cols(), size_.cols);
    at_ = 0;
    return true;
  }

  Kept<Schedule> s_;
  ChunkRole role_;
  typename ChunkRole::Work chunk_;
  WorkSize size_;
  int32_t works_ = 0;
  int32_t at_ = 0;
};

// Which chunks a warp has a part of, those of `worker`, and which part.
struct SumTeam {
  int32_t worker = 0;
  int32_t part = 0;
  int32_t parts = 1;
};

// Warp `member` of `members`, of which there are `workers` teams, at most as many.
TILEWIRE_HD constexpr SumTeam sum_team(int32_t member, int32_t members, int32_t workers) {
  const int32_t worker = member % workers;
  return {worker, member / workers, (members - worker + workers - 1) / workers};
}

// Numbers of a row of a chunk that are added up at once.
struct NumberPlace {
  int32_t row = 0;    // from the chunk's first
  int32_t col = 0;    // likewise
  int32_t count = 0;  // so many of them are in the chunk
};

// The places of a lane of a team's warp in a chunk of rows x cols, `run` numbers at each. Lanes of a warp have places
// beside each other.
class PlaceWalk {
 public:
  TILEWIRE_HD constexpr PlaceWalk(int32_t rows, int32_t cols, int32_t run, const SumTeam& team, int32_t lane)
      : rows_(rows), cols_(cols), run_(run), in_row_((cols + run - 1) / run) {
    constexpr int32_t kLanes = 32;
    const int32_t step = team.parts * kLanes, first = team.part * kLanes + lane;
    if (in_row_ == 0) return;
    step_rows_ = step / in_row_;
    step_places_ = step % in_row_;
    row_ = first / in_row_;
    place_ = first % in_row_;
  }

  TILEWIRE_HD constexpr bool has_next() const { return row_ < rows_ && in_row_ > 0; }
  TILEWIRE_HD constexpr NumberPlace next() {
    const int32_t col = place_ * run_;
    const NumberPlace p{row_, col, cols_ - col < run_ ? cols_ - col : run_};
    row_ += step_rows_;
    place_ += step_places_;
    if (place_ >= in_row_) {
      place_ -= in_row_;
      ++row_;
    }
    return p;
  }

 private:
  int32_t rows_, cols_, run_, in_row_;
  int32_t step_rows_ = 0, step_places_ = 0;
  int32_t row_ = 0, place_ = 0;
};

}  // namespace tilewire

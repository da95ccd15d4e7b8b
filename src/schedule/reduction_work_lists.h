// Writes the works of a reduction down for a kernel (schedule/reduction_works.h). Host code.
#pragma once

#include <cstdint>

#include "schedule/reduction_works.h"
#include "schedule/work_list.h"

namespace tilewire {

struct ReductionWorkLists {
  WorkList<TileWork> tiles;  // in the order in which clusters take them
  WorkList<SumWork> reduce;  // without a network: of nobody
  WorkList<SumWork> finish;
};

// A place in a half. Kernels count wire units in 32 bits: throws Error(resource) where that is too little.
uint32_t wire_unit(int64_t offset);

template <class Schedule>
TileWork tile_work(const Schedule& s, OwnedChunk chunk, const RowRange& rows, const ColumnRange& columns,
                   int32_t works) {
  const auto number = [](int64_t value) { return static_cast<int32_t>(value); };
  const int32_t taker = s.all_take() ? 0 : s.topology().local(s.taker(chunk.owner)).value;
  TileWork work;
  work.rows.begin = number(rows.begin);
  work.columns.begin = number(columns.begin);
  work.chunk_row = number(s.map.rows(chunk).begin);
  work.chunk_col = number(s.map.columns(chunk).begin);
  work.slot = number(s.partial_slot(s.me(), chunk));
  work.map = slot_map(taker, s.is_last(s.map.columns(chunk)));
  work.takers = s.all_take() ? s.width() : 1;
  work.works = works;
  work.tile = s.map.global(chunk);
  return work;
}

// A chunk whose partial sums lie here.
template <class Schedule>
SumWork sum_work(const Schedule& s, OwnedChunk chunk) {
  SumWork work;
  work.counter = s.sum_number(chunk);
  work.number = s.map.global(chunk);
  work.rows = static_cast<int32_t>(s.map.rows(chunk).rows());
  work.cols = static_cast<int32_t>(s.map.columns(chunk).cols());
  const int64_t first = s.partial_offset(s.source(0), chunk);
  work.partials = wire_unit(first);
  if (s.width() > 1) work.partial_step = wire_unit(s.partial_offset(s.source(1), chunk) - first);
  return work;
}

// Compute, Reduce and Finish are the op's roles, by a schedule and a worker. `size`: of what a cluster computes at once.
// `finished(chunk, work)`: what the op says of a chunk that is finished: row, to, also_to.
template <class Compute, class Reduce, class Finish, class Schedule, class Finished>
ReductionWorkLists reduction_work_lists(const Schedule& s, WorkSize size, const Finished& finished) {
  ReductionWorkLists lists;
  using Tiles = PartialTileRole<Compute, Schedule>;
  Schedule of_one = s;
  of_one.workers = 1;
  lists.tiles.add(Tiles(of_one, 0, size),
                  [&](const typename Tiles::Work& w) { return tile_work(s, w.chunk, w.rows, w.columns, w.works); });
  for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
    if (s.frame.has_network()) {
      lists.reduce.add(Reduce(s, worker), [&](const typename Reduce::Work& w) {
        SumWork work = sum_work(s, w.chunk);
        work.to = wire_unit(s.sent_offset(w.chunk));
        return work;
      });
    }
    lists.finish.add(Finish(s, worker), [&](const typename Finish::Work& w) {
      SumWork work = sum_work(s, w.chunk);
      if (s.other_nodes() > 0) {
        const int64_t first = s.received_offset(s.other_node(0), w.chunk);
        work.received = wire_unit(first);
        if (s.other_nodes() > 1) {
          work.received_step = wire_unit(s.received_offset(s.other_node(1), w.chunk) - first);
        }
      }
      work.col = static_cast<int32_t>(s.map.columns(w.chunk).begin);
      finished(w.chunk, work);
      return work;
    });
  }
  return lists;
}

}  // namespace tilewire

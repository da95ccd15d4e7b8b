// The works of a role, written down: a kernel finds in one look what an iterator finds by looking from table to table, and
// each of those looks would wait for memory. Whoever writes them down walks the role's own iterator, so that there is one
// source of what is done in which order.
#pragma once

#include <cstdint>
#include <cstring>

#include "schedule/role.h"

namespace tilewire {

// A work in a table derives from it, and is a multiple of 16 bytes that begins on one.
struct TabledWork : WorkBase {
  int32_t first_need = 0;  // among all of the table
  int32_t first_publish = 0;
};

// The tables are those of a WorkList.
template <class TableWork>
struct WorkTable {
  const TableWork* works = nullptr;
  const int32_t* begin = nullptr;  // [workers + 1] the first work of each
  const Need* needs = nullptr;
  const Publish* publishes = nullptr;
};

template <class TableWork>
TILEWIRE_HD inline void read_work(const TableWork* from, TableWork& work) {
#if defined(__CUDA_ARCH__)
  static_assert(sizeof(TableWork) % 16 == 0 && alignof(TableWork) == 16);
  uint4 raw[sizeof(TableWork) / 16];
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(TableWork) / 16); ++i) {
    raw[i] = __ldg(reinterpret_cast<const uint4*>(from) + i);
  }
  memcpy(&work, raw, sizeof(work));
#else
  work = *from;
#endif
}

// A role as a table has it.
template <class TableWork>
class TabledRole {
 public:
  using Work = TableWork;
  TILEWIRE_HD TabledRole(const WorkTable<TableWork>& table, int32_t worker)
      : table_(table), at_(table.begin[worker]), end_(table.begin[worker + 1]) {}

  TILEWIRE_HD bool next(Work& w) {
    if (at_ >= end_) return false;
    read_work(table_.works + at_, w);
    ++at_;
    return true;
  }
  // The work that next() gave last, once more: nothing of it has to be kept meanwhile.
  TILEWIRE_HD void again(Work& w) const {
    int32_t at = at_ - 1;
#if defined(__CUDA_ARCH__)
    asm volatile("" : "+r"(at));  // or the compiler would know what is there, and keep it
#endif
    read_work(table_.works + at, w);
  }
  TILEWIRE_HD Need need(const Work& w, int32_t i) const { return table_.needs[w.first_need + i]; }
  TILEWIRE_HD Publish publish(const Work& w, int32_t i) const { return table_.publishes[w.first_publish + i]; }

 private:
  Kept<WorkTable<TableWork>> table_;
  int32_t at_, end_;
};

// The works of a table that are taken by their numbers, by whoever is free (device/tile/deal.cuh).
template <class TableWork>
class TakenRole {
 public:
  using Work = TableWork;
  TILEWIRE_HD explicit TakenRole(const WorkTable<TableWork>& table) : table_(table) {}

  TILEWIRE_HD bool take(uint32_t number, Work& w) const {
    read_work(table_.works + number, w);
    return true;
  }
  TILEWIRE_HD Need need(const Work& w, int32_t i) const { return table_.needs[w.first_need + i]; }
  TILEWIRE_HD Publish publish(const Work& w, int32_t i) const { return table_.publishes[w.first_publish + i]; }

 private:
  Kept<WorkTable<TableWork>> table_;
};

}  // namespace tilewire

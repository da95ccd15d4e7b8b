// The threads of a CTA that make the tables of a call: those that compute, before their tiles begin.
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/ptx/control.cuh"
#include "device/sync/call_remark.cuh"
#include "ops/moe_dispatch/device_limits.h"
#include "ops/moe_dispatch/device_parameters.cuh"

namespace tilewire::moe_dispatch {

constexpr uint32_t kTableBarrier = 5;  // behind those of a tile kernel (device/tile/store.cuh)

class TableTeam {
 public:
  TILEWIRE_DEVICE static int32_t lane() { return static_cast<int32_t>(threadIdx.x % 32); }
  TILEWIRE_DEVICE static int32_t warp() { return thread() / 32; }
  TILEWIRE_DEVICE static int32_t thread() { return static_cast<int32_t>(threadIdx.x) - kWarpgroupThreads; }
  TILEWIRE_DEVICE static void join() { ptx::named_barrier_sync(kTableBarrier, kTableThreads); }

  // visit(i) for each i below `count`, by one thread of the CTA each.
  // (Tables have fewer than 2^31 numbers, and 64 bits take a hundred instructions to divide.)
  template <class Visit>
  TILEWIRE_DEVICE static void for_each(int32_t count, const Visit& visit) {
    for (int32_t i = thread(); i < count; i += kTableThreads) visit(i);
  }
  // By one warp of the CTA each.
  template <class Visit>
  TILEWIRE_DEVICE static void for_each_by_warp(int32_t count, const Visit& visit) {
    for (int32_t i = warp(); i < count; i += kTableWarps) visit(i);
  }
};

// By a whole warp: sum(i) = what all numbers before i are together, from `first` on; gives all of them. `number(i)`,
// `sum(i, value)`. Several numbers of a lane are looked up at once.
template <class Value, class Number, class Sum>
TILEWIRE_DEVICE Value sum_up_by_warp(int32_t count, Value first, const Number& number, const Sum& sum) {
  constexpr int32_t kAtOnce = 4;
  const int32_t lane = TableTeam::lane();
  for (int32_t begin = lane; begin - lane < count; begin += 32 * kAtOnce) {
    Value own[kAtOnce];
#pragma unroll
    for (int32_t j = 0; j < kAtOnce; ++j) own[j] = begin + 32 * j < count ? number(begin + 32 * j) : 0;
#pragma unroll
    for (int32_t j = 0; j < kAtOnce; ++j) {
      Value all = own[j];
#pragma unroll
      for (int32_t step = 1; step < 32; step *= 2) {
        const Value before = __shfl_up_sync(0xffffffff, all, step);
        if (lane >= step) all += before;
      }
      if (begin + 32 * j < count) sum(begin + 32 * j, first + all - own[j]);
      first += __shfl_sync(0xffffffff, all, 31);
    }
  }
  return first;
}

// By one thread that speaks for the rank.
struct RemarkNumbers {
  int64_t first, second, third;
};
TILEWIRE_DEVICE void remark(const FusedParameters& p, Epoch epoch, Remark kind, const RemarkNumbers& n) {
  leave_remark(p.remarks, {.op = p.call.limits.op,
                           .kind = static_cast<int32_t>(kind),
                           .epoch = epoch,
                           .numbers = {n.first, n.second, n.third}});
}

}  // namespace tilewire::moe_dispatch

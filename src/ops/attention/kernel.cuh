// The fused kernel of ring attention: one launch a rank and call. Entry, role switch, roles; the order of all work is that of
// the iterators of schedule.h.
//
// All CTAs compute: each is a compute worker. Warp 0 loads steps, the warpgroups behind the first one compute. Beside them,
// in the first warpgroup:
//   warp 1   looks for what to load next; then says when the CTA has finished
//   warp 2   load, then push
//   warp 3   of the first three CTAs call, send and relay; of the next one release; of the others forward
#pragma once

#include "device/attention/attention_compute.cuh"
#include "device/comm/rank_warps.cuh"
#include "ops/attention/device_copy.cuh"
#include "ops/attention/device_load.cuh"

namespace tilewire::attention {

constexpr int32_t kReleaseCta = kRankWarps, kFirstForwardCta = kReleaseCta + 1;

// Where results go.
class ResultTarget {
 public:
  TILEWIRE_DEVICE explicit ResultTarget(const FusedParameters& p) : p_(p) {}

  // Rows past the last one are not written.
  TILEWIRE_DEVICE void store(uint32_t box, const ItemNote& item, int32_t row, int32_t column) const {
    if (row < p_.schedule.rows) ptx::tma_store(&p_.o, box, column, row, item.head, item.batch);
  }
  TILEWIRE_DEVICE void log_sum(const ItemNote& item, int32_t row, float value) const {
    if (row >= p_.schedule.rows) return;
    p_.log_sums[(int64_t{item.batch} * p_.q_heads + item.head) * p_.log_sum_pitch + row] = value;
  }

 private:
  const FusedParameters& p_;
};

// Notes the items of the first two groups, by the first thread of each. Holds no register for it.
class ItemTrace {
 public:
  TILEWIRE_DEVICE explicit ItemTrace(const CallSpace& space) : space_(space) {}

  template <class Work>
  TILEWIRE_DEVICE void wait(const Work& w) const {
    if (group() < 2) trace().wait(w);
  }
  TILEWIRE_DEVICE void begin() const {
    if (group() < 2) trace().begin();
  }
  TILEWIRE_DEVICE void end() const {
    if (group() < 2) trace().end();
  }

 private:
  TILEWIRE_DEVICE static uint32_t group() { return ptx::thread_anew() / kWarpgroupThreads - 1; }
  TILEWIRE_DEVICE TileTrace trace() const { return {space_, group(), kComputeRole}; }

  const CallSpace& space_;
};

TILEWIRE_DEVICE void run_sends(const FusedParameters& p, const CallSpace& space) {
  if (!p.schedule.frame.has_network()) return;
  run_send<Roles, kSendRole>(space, SendRole(p.schedule), [&](const SendWork& w) {
    return chunk_note(w.chunk, p.schedule.bytes(w.chunk), kSendRole, TraceLink::network);
  });
}

TILEWIRE_DEVICE void run_release(const FusedParameters& p, const CallSpace& space) {
  if (p.schedule.window >= p.schedule.units()) return;
  CallGate gate(space, kReleaseRole, kRankPauseNs);
  run_signals(space, gate, ReleaseRole(p.schedule), [](const ReleaseWork&) {});
}

// The warps of a CTA that neither load nor compute.
template <class Form>
class Beside {
 public:
  TILEWIRE_DEVICE Beside(const FusedParameters& p, const CallSpace& space, const SharedAttention<Form>& shared)
      : p_(p),
        space_(space),
        shared_(shared),
        pushes_(shared.spare(), p.pace_clocks),
        forwards_(shared.spare() + kCopyBytes, p.pace_clocks),
        finish_(shared.spare() + kFinishOffset) {
    static_assert(kFinishOffset + CtaFinish::kSharedBytes <= AttentionPlan<Form>::kSpareBytes);
  }

  TILEWIRE_DEVICE void init() const {
    pushes_.init();
    forwards_.init();
    SegmentRing(shared_.feeder_room()).init();
    finish_.init(Form::kGroups);
  }
  TILEWIRE_DEVICE void computed() const { CtaFinish(shared_.spare() + kFinishOffset).arrive(); }
  TILEWIRE_DEVICE void run(uint32_t warp) const {
    const auto cta = static_cast<int32_t>(blockIdx.x), ctas = static_cast<int32_t>(gridDim.x);
    if (warp == 1) {
      if (ptx::elect_one()) ItemScout<Form>(p_, space_, shared_.feeder_room()).run();
      __syncwarp();
      finish_.publish(space_);
    } else if (warp == 2) {
      copy_own(cta, ctas);
      finish_.arrive();
    } else if (cta < kRankWarps) {
      run_rank_warp<Roles>(
          space_, finish_, [&] { run_sends(p_, space_); }, DrainRole(p_.schedule), false, kCallRole);
    } else {
      if (cta == kReleaseCta) run_release(p_, space_);
      if (cta >= kFirstForwardCta) forward(cta - kFirstForwardCta, ctas - kFirstForwardCta);
      finish_.arrive();
    }
  }

 private:
  using Copy = SoloCopy<2>;
  static constexpr int32_t kCopyBytes = Copy::kSharedBytes + 112;  // a whole number of lines of 128 bytes
  static_assert(kCopyBytes % 128 == 0);
  static constexpr int32_t kFinishOffset = 2 * kCopyBytes;

  TILEWIRE_DEVICE void copy_own(int32_t cta, int32_t ctas) const {
    if (threadIdx.x % 32 != 0) return;
    Copy copy = pushes_;
    copy.start_after(p_.pace_clocks / gridDim.x * blockIdx.x);
    run_copies<true>(p_, space_, copy, LoadRole(p_.schedule), kLoadRole, cta, ctas);
    if (p_.schedule.local_peers() > 0) run_copies<true>(p_, space_, copy, PushRole(p_.schedule), kPushRole, cta, ctas);
  }
  TILEWIRE_DEVICE void forward(int32_t worker, int32_t workers) const {
    if (threadIdx.x % 32 != 0 || !p_.schedule.frame.has_network() || p_.schedule.local_peers() == 0) return;
    Copy copy = forwards_;
    copy.start_after(p_.pace_clocks / gridDim.x * blockIdx.x);
    const bool has_window = p_.schedule.window < p_.schedule.units();
    run_copies<false>(p_, space_, copy, ForwardRole(p_.schedule), kForwardRole, worker, workers, has_window);
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  const SharedAttention<Form>& shared_;
  Copy pushes_, forwards_;
  CtaFinish finish_;
};

template <class Form, class Element>
__global__ void __launch_bounds__(AttentionPlan<Form>::kThreads, 1)
    fused_kernel(const __grid_constant__ FusedParameters p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const CallSpace space(p.schedule.frame, p.call);
  const SharedAttention<Form> shared(memory);
  const Beside<Form> beside(p, space, shared);
  const uint32_t warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  if (threadIdx.x == 0) {
    shared.init();
    beside.init();
    ptx::fence_mbarrier_init();
  }
  if (threadIdx.x == 32) {
    for (const CUtensorMap* map : {&p.q, &p.k, &p.v, &p.o}) ptx::prefetch_tensor_map(map);
  }
  __syncthreads();
  if (warpgroup == 0) {
    ptx::lower_registers<Form::kLoaderRegisters>();
    if (warp == 0 && ptx::elect_one()) ItemLoader<Form>(p, space, shared).run();
    if (warp >= 1) beside.run(warp);
  } else {
    ptx::raise_registers<Form::kComputeRegisters>();
    const auto group = static_cast<int32_t>(warpgroup) - 1;
    const RowMask mask(p);
    const ResultTarget target(p);
    const ItemTrace trace(space);
    AttentionCompute<Form, Element, RowMask, ResultTarget, ItemTrace>(shared, mask, target, trace, p.scale, group)
        .run();
    beside.computed();
  }
}

}  // namespace tilewire::attention

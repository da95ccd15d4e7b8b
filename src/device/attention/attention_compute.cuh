// The computing warpgroups of attention: queries, keys and values from shared memory, results and logarithms of sums to
// memory, item after item.
//
// The scores of a step are issued together with the values of the step before, and its softmax runs while the tensor cores
// are at those: from one item to the next too, so that the steps of all items are one stream.
#pragma once

#include "device/attention/attention_shared.cuh"
#include "device/attention/online_softmax.cuh"
#include "device/ptx/control.cuh"
#include "device/ptx/memory_order.cuh"
#include "device/ptx/stmatrix.cuh"
#include "device/ptx/tma.cuh"
#include "device/ptx/wgmma.cuh"
#include "device/tile/number_pairs.cuh"

namespace tilewire {

// The registers of a matrix instruction, behind its wait: no use of them goes above this, and none is taken for something
// else before.
template <int kCount>
TILEWIRE_DEVICE void pin(float (&registers)[kCount]) {
#pragma unroll
  for (int32_t i = 0; i < kCount; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}
template <int kCount>
TILEWIRE_DEVICE void pin(uint32_t (&registers)[kCount]) {
#pragma unroll
  for (int32_t i = 0; i < kCount; ++i) asm volatile("" : "+r"(registers[i])::"memory");
}

// ptxas moves a wait for the tensor cores up over arithmetic that touches none of their registers, and with it goes what
// was to run beside them. A branch on that arithmetic's result, which is never taken, holds it.
TILEWIRE_DEVICE void finish_before_next(float never_negative) {
  if (never_negative < 0) asm volatile("nanosleep.u32 20;" ::: "memory");
  __syncwarp();
}

// The same in all lanes, which the compiler is told: else addresses are computed in every lane and moved one by one.
TILEWIRE_DEVICE int32_t uniform(int32_t value) { return __shfl_sync(0xffffffff, value, 0); }

struct TracedItem {
  int32_t tile;
};

// Mask:
//   void begin(uint32_t room, int32_t row)   by a warp, which has 16 rows of the own queries from `row` on, and kMaskBytes
//   void apply(uint32_t room, float (&scores)[n], const StepNote&)   -infinity where a row does not see a key
// Target:
//   void store(uint32_t box, const ItemNote&, int32_t row, int32_t column)   64 rows of 64 columns, by one thread
//   void log_sum(const ItemNote&, int32_t row, float)
// Trace: see NoTileTrace.
template <class Form, class Element, class Mask, class Target, class Trace>
class AttentionCompute {
 public:
  using Plan = AttentionPlan<Form>;

  TILEWIRE_DEVICE AttentionCompute(const SharedAttention<Form>& shared, const Mask& mask, const Target& target,
                                   const Trace& trace, float scale, int32_t group)
      : shared_(shared),
        mask_(mask),
        target_(target),
        trace_(trace),
        softmax_(scale),
        keys_(shared.key_barriers()),
        values_(shared.value_barriers()),
        group_(group),
        warp_(uniform(static_cast<int32_t>(threadIdx.x / 32 % 4))) {}

  TILEWIRE_DEVICE void run() {
    float s[kScores], o[kSums], rescale[2];
    uint32_t weights[kScores / 2];
    if (!next_item()) return;
    begin_item();
    trace_item();
    first_step(s, weights, rescale);
    for (;;) {
      while ((mark_ & kLastStep) == 0) {
        if (!step(s, o, weights, rescale)) continue;
#pragma unroll
        for (int32_t i = 0; i < kSums; ++i) o[i] *= rescale[row_of_register(i)];
      }
      float inverse[2], log_sum[2];
      softmax_.finish(inverse, log_sum);
      if ((mark_ & kBrokenStep) != 0) inverse[0] = inverse[1] = log_sum[0] = log_sum[1] = NAN;
      const uint32_t done = buffer_;
      store_log_sums(done, log_sum);
      give_back_stored();
      if (!next_item()) {
        last_values(o, weights);
        store(o, done, inverse);
        end_item();
        break;
      }
      begin_item();
      step(s, o, weights, rescale);
      store(o, done, inverse);
      end_item();
      trace_item();
    }
    if (is_leader()) ptx::bulk_wait_read<0>();  // shared memory outlives the copies
    __syncwarp();
  }

 private:
  static constexpr int32_t kScores = Form::kStep / 2, kSums = Form::kHeadDim / 2;
  static constexpr uint32_t kGroupBarrier = 1;                            // and one for each further group
  static constexpr uint64_t kDepthStep = 32 / ptx::kDescriptorUnitBytes;  // 16 elements along the columns
  static constexpr uint64_t kRowsStep = 16 * Plan::kLineBytes / ptx::kDescriptorUnitBytes;

  TILEWIRE_DEVICE static int32_t lane() { return static_cast<int32_t>(ptx::thread_anew() % 32); }
  // One thread of the group, always the same.
  TILEWIRE_DEVICE bool is_leader() const { return warp_ == 0 && ptx::elect_one(); }
  TILEWIRE_DEVICE void join_group() const { ptx::named_barrier_sync(kGroupBarrier + group_, 128); }
  template <class Pipe>
  TILEWIRE_DEVICE static void give_back(const Pipe& pipe, uint32_t stage) {
    pipe.give_back(stage);
    __syncwarp();
  }

  // ---- items
  TILEWIRE_DEVICE bool next_item() {
    const PipelineBarriers<Plan::kQueries> barriers = shared_.query_barriers();
    while (!ptx::mbarrier_try_wait(barriers.full(queries_.stage), queries_.parity)) {
    }
    if (uniform(shared_.item(queries_.stage).batch) < 0) return false;
    buffer_ = queries_.stage;
    queries_.next();
    return true;
  }
  TILEWIRE_DEVICE void begin_item() {
    softmax_.begin();
    mask_.begin(shared_.mask_room(4 * group_ + warp_), uniform(shared_.item(buffer_).row) + 64 * group_ + 16 * warp_);
  }
  // Each is noted from where the one before it ends: their steps overlap.
  TILEWIRE_DEVICE void trace_item() const {
    trace_.wait(TracedItem{shared_.item(buffer_).number});
    trace_.begin();
    __syncwarp();
  }
  TILEWIRE_DEVICE void end_item() const {
    trace_.end();
    __syncwarp();
  }
  // The loader may overwrite queries when the result that took their place has been read.
  TILEWIRE_DEVICE void give_back_stored() {
    if (stored_ >= 0 && is_leader()) {
      ptx::bulk_wait_read<0>();
      ptx::mbarrier_arrive(shared_.query_barriers().empty(stored_));
    }
    __syncwarp();
    stored_ = -1;
  }

  // The values of a step are behind its keys by one step, in stages of the same numbers.
  TILEWIRE_DEVICE PipelineCursor<Form::kStages> values_at() const { return keys_.ahead().before(); }

  // ---- products
  TILEWIRE_DEVICE void issue_scores(float (&s)[kScores], uint32_t stage) const {
    const uint64_t q = ptx::k_major_descriptor(shared_.queries(buffer_, 0, group_));
    const uint64_t k = ptx::k_major_descriptor(shared_.keys(stage));
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t t = 0; t < Form::kHeadDim / 16; ++t) {
      const uint64_t within = t % 4 * kDepthStep;
      ptx::wgmma<Element, false>(s, q + t / 4 * (Plan::kQueryPanelBytes / ptx::kDescriptorUnitBytes) + within,
                                 k + t / 4 * (Plan::kStepPanelBytes / ptx::kDescriptorUnitBytes) + within, t > 0);
    }
    ptx::wgmma_commit();
  }
  TILEWIRE_DEVICE void issue_values(float (&o)[kSums], const uint32_t (&weights)[kScores / 2], uint32_t stage) const {
    const bool adds = (mark_ & kFirstStep) == 0;
    const uint64_t v = ptx::n_major_descriptor(shared_.values(stage), Plan::kStepPanelBytes);
    ptx::wgmma_fence();
#pragma unroll
    for (int32_t t = 0; t < Form::kStep / 16; ++t) {
      ptx::wgmma<Element, true>(o, &weights[4 * t], v + t * kRowsStep, adds || t > 0);
    }
    ptx::wgmma_commit();
  }
  // Two neighbouring groups of 8 columns of scores are, in this order, 16 columns of an operand.
  TILEWIRE_DEVICE static void pack(uint32_t (&weights)[kScores / 2], const float (&s)[kScores]) {
#pragma unroll
    for (int32_t i = 0; i < kScores / 2; ++i) weights[i] = pack_pair<Element>(s[2 * i], s[2 * i + 1]);
  }

  // What lies behind the last value of a step is anything, NaN too, and a weight of 0 does not help against that. All groups
  // write the same zeros, and none uses the stage before it has.
  TILEWIRE_DEVICE void clear_behind_values() {
    const int32_t count = keys_of(mark_);
    if (count == Form::kStep) return;
    const uint32_t stage = values_.wait_at(values_at());
    const auto thread = static_cast<int32_t>(threadIdx.x % 128);
    const int32_t pieces = (Form::kStep - count) * (Plan::kLineBytes / 16);
#pragma unroll 1
    for (int32_t panel = 0; panel < Plan::kPanels; ++panel) {
      const uint32_t first = shared_.values(stage) + panel * Plan::kStepPanelBytes + count * Plan::kLineBytes;
#pragma unroll 1
      for (int32_t i = thread; i < pieces; i += 128) ptx::store_shared_four(first + 16 * i, {0, 0, 0, 0});
      __syncwarp();
    }
    ptx::fence_async_shared();
    join_group();
  }

  // ---- steps
  // Scores that are there to weights, and the keys are given back.
  TILEWIRE_DEVICE bool weigh(float (&s)[kScores], float (&rescale)[2], uint32_t stage) {
    if ((mark_ & kMaskedStep) != 0) mask_.apply(shared_.mask_room(4 * group_ + warp_), s, shared_.step(stage));
    give_back(keys_, stage);
    return softmax_.add(s, rescale);
  }
  TILEWIRE_DEVICE void first_step(float (&s)[kScores], uint32_t (&weights)[kScores / 2], float (&rescale)[2]) {
    const uint32_t stage = keys_.wait();
    issue_scores(s, stage);
    mark_ = uniform(shared_.step_mark(stage));
    ptx::wgmma_wait<0>();
    pin(s);
    weigh(s, rescale, stage);
    pack(weights, s);
  }
  // Leaves the mark of the step whose scores came to be weights. Whether sums are to be multiplied.
  TILEWIRE_DEVICE bool step(float (&s)[kScores], float (&o)[kSums], uint32_t (&weights)[kScores / 2],
                            float (&rescale)[2]) {
    clear_behind_values();
    const PipelineCursor<Form::kStages> values = values_at();
    const uint32_t stage = keys_.wait();
    issue_scores(s, stage);
    const uint32_t value_stage = values_.wait_at(values);
    issue_values(o, weights, value_stage);
    mark_ = uniform(shared_.step_mark(stage));
    give_back_stored();

    ptx::wgmma_wait<1>();
    pin(s);
    const bool has_moved = weigh(s, rescale, stage);
    finish_before_next(softmax_.any_sum());

    ptx::wgmma_wait<0>();
    pin(o);
    pin(weights);
    give_back(values_, value_stage);
    pack(weights, s);
    return has_moved;
  }
  TILEWIRE_DEVICE void last_values(float (&o)[kSums], uint32_t (&weights)[kScores / 2]) {
    clear_behind_values();
    const uint32_t stage = values_.wait_at(values_at());
    issue_values(o, weights, stage);
    ptx::wgmma_wait<0>();
    pin(o);
    give_back(values_, stage);
  }

  // ---- results
  TILEWIRE_DEVICE void store_log_sums(uint32_t buffer, const float (&log_sum)[2]) const {
    const ItemNote item = shared_.item(buffer);
    const int32_t row = item.row + 64 * group_ + 16 * warp_ + lane() / 4;
    if (lane() % 4 == 0) {
#pragma unroll
      for (int32_t r = 0; r < 2; ++r) target_.log_sum(item, row + 8 * r, log_sum[r]);
    }
    __syncwarp();
  }
  TILEWIRE_DEVICE void store(const float (&o)[kSums], uint32_t buffer, const float (&inverse)[2]) {
    const ItemNote item = shared_.item(buffer);
    const int32_t row = uniform(item.row) + 64 * group_;
    join_group();  // nobody reads queries there any more
    const auto thread = static_cast<int32_t>(ptx::thread_anew() % 32);
    const int32_t line = 16 * warp_ + thread % 16;
#pragma unroll
    for (int32_t t = 0; t < Form::kHeadDim / 16; ++t) {
      const float* f = &o[8 * t];
      const int32_t piece = t % 4 * 2 + thread / 16;
      ptx::stmatrix_x4(shared_.queries(buffer, t / 4, group_) + line * Plan::kLineBytes + ((piece ^ line % 8) * 16),
                       pack_pair<Element>(f[0] * inverse[0], f[1] * inverse[0]),
                       pack_pair<Element>(f[2] * inverse[1], f[3] * inverse[1]),
                       pack_pair<Element>(f[4] * inverse[0], f[5] * inverse[0]),
                       pack_pair<Element>(f[6] * inverse[1], f[7] * inverse[1]));
    }
    ptx::fence_async_shared();
    join_group();
    if (is_leader()) {
#pragma unroll
      for (int32_t panel = 0; panel < Plan::kPanels; ++panel) {
        target_.store(shared_.queries(buffer, panel, group_), item, row, 64 * panel);
      }
      ptx::bulk_commit();
    }
    __syncwarp();
    stored_ = static_cast<int32_t>(buffer);
  }

  const SharedAttention<Form>& shared_;
  const Mask& mask_;
  const Target& target_;
  const Trace& trace_;
  OnlineSoftmax<kScores> softmax_;
  PipelineConsumer<Form::kStages> keys_, values_;
  PipelineCursor<Plan::kQueries> queries_;  // of the next item
  int32_t group_, warp_;
  uint32_t buffer_ = 0;  // of this one
  StepMark mark_ = 0;    // of the step whose weights are there
  int32_t stored_ = -1;  // a buffer that a copy may still be reading
};

}  // namespace tilewire

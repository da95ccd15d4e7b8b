// A ring of kStages stages in shared memory between one thread that fills it by the copy engine and warps that read it.
//
//   producer:  Slot s = pipe.acquire(bytes);  copies that complete on s.full;  pipe.commit();
//   consumer:  stage = pipe.wait();  ... read ...;  pipe.release();
//
// Stages and phases are the business of these objects alone. A consumer may hold several stages and releases them in
// the order in which it waited for them. Consumers that take turns skip the stages of the others, and then need an
// order between them: a wait tells only whether one phase is over, so nobody may be two rounds behind.
//
// In a cluster the copies of one CTA may land in several, so a stage is free when the consumers of all CTAs that it
// lands in have released it: lane i of each consumer warp tells CTA i of the kSharers (the own one too).
// These waits have no deadline of their own: what they wait for is work of the own cluster, which always comes, because
// a role that gives up (sync/wait.cuh) still moves its stages.
#pragma once

#include "device/ptx/cluster.cuh"
#include "device/ptx/mbarrier.cuh"

namespace tilewire {

// Where the barriers of a pipeline lie: 16 bytes a stage, 8-byte aligned.
template <int kStages>
struct PipelineBarriers {
  static constexpr int32_t kBytes = 16 * kStages;

  uint32_t address;

  TILEWIRE_DEVICE uint32_t full(uint32_t stage) const { return address + 8 * stage; }
  TILEWIRE_DEVICE uint32_t empty(uint32_t stage) const { return address + 8 * (kStages + stage); }

  // By one thread, before a barrier of all who use it. `releases`: calls of release() that free a stage, that is
  // consumer warps of one CTA times sharers.
  TILEWIRE_DEVICE void init(uint32_t releases) const {
    for (uint32_t stage = 0; stage < kStages; ++stage) {
      ptx::mbarrier_init(full(stage), 1);
      ptx::mbarrier_init(empty(stage), releases);
    }
    ptx::fence_mbarrier_init();
  }
};

// A stage and the parity of the round in which it is used.
template <int kStages>
struct PipelineCursor {
  uint32_t stage = 0;
  uint32_t parity = 0;

  TILEWIRE_DEVICE void next() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
  TILEWIRE_DEVICE PipelineCursor before() const {
    return {stage == 0 ? kStages - 1 : stage - 1, stage == 0 ? parity ^ 1 : parity};
  }
  TILEWIRE_DEVICE void skip(uint32_t stages) {
    stage += stages;
    parity ^= stage / kStages & 1;
    stage %= kStages;
  }
};

// Of one thread.
template <int kStages>
class PipelineProducer {
 public:
  struct Slot {
    uint32_t stage;
    uint32_t full;  // the barrier on which the copies complete
  };

  TILEWIRE_DEVICE explicit PipelineProducer(PipelineBarriers<kStages> barriers) : barriers_(barriers) {}

  // Waits until the next stage is free and announces `bytes` of copies into it.
  TILEWIRE_DEVICE Slot acquire(uint32_t bytes) {
    const uint32_t stage = wait_free();
    return {stage, announce(bytes)};
  }
  // The two parts of it, where the thread has something to write into the stage itself: that goes between them.
  TILEWIRE_DEVICE uint32_t wait_free() {
    while (!ptx::mbarrier_try_wait(barriers_.empty(cursor_.stage), cursor_.parity ^ 1)) {
    }
    return cursor_.stage;
  }
  TILEWIRE_DEVICE uint32_t announce(uint32_t bytes) {
    const uint32_t full = barriers_.full(cursor_.stage);
    ptx::mbarrier_arrive_expect(full, bytes);
    return full;
  }
  TILEWIRE_DEVICE void commit() { cursor_.next(); }
  // Until all stages are free.
  TILEWIRE_DEVICE void wait_taken() const {
    PipelineCursor<kStages> at = cursor_;
    for (int32_t i = 0; i < kStages; ++i) {
      while (!ptx::mbarrier_try_wait(barriers_.empty(at.stage), at.parity ^ 1)) {
      }
      at.next();
    }
  }
  // Until the copies into all stages so far are complete.
  TILEWIRE_DEVICE void wait_loaded() const {
    PipelineCursor<kStages> behind = cursor_;
    behind.parity ^= 1;  // of the round before, from this stage on
    for (int32_t i = 0; i < kStages; ++i) {
      while (!ptx::mbarrier_try_wait(barriers_.full(behind.stage), behind.parity)) {
      }
      behind.next();
    }
  }

 private:
  PipelineBarriers<kStages> barriers_;
  PipelineCursor<kStages> cursor_;
};

// One in every thread of the consumer warps; whole warps call it.
template <int kStages, int kSharers = 1>
class PipelineConsumer {
 public:
  TILEWIRE_DEVICE explicit PipelineConsumer(PipelineBarriers<kStages> barriers) : barriers_(barriers) {
    const uint32_t lane = threadIdx.x % 32;
    releases_ = lane < kSharers;
    empty_ = barriers.empty(0);
    if constexpr (kSharers > 1) empty_ = ptx::map_to_cta(empty_, lane % kSharers);
  }

  // Waits until the next stage is full.
  TILEWIRE_DEVICE uint32_t wait() {
    const uint32_t stage = wait_for_next();
    ahead_.next();
    return stage;
  }
  // The next stage, for who uses the stages of another pipeline in step with those of this one.
  TILEWIRE_DEVICE PipelineCursor<kStages> ahead() const { return ahead_; }
  TILEWIRE_DEVICE uint32_t wait_at(PipelineCursor<kStages> at) const {
    while (!ptx::mbarrier_try_wait(barriers_.full(at.stage), at.parity)) {
    }
    return at.stage;
  }
  // The same, and that stage stays the next one.
  TILEWIRE_DEVICE uint32_t wait_for_next() const {
    while (!ptx::mbarrier_try_wait(barriers_.full(ahead_.stage), ahead_.parity)) {
    }
    return ahead_.stage;
  }

  // Gives back the oldest stage that this warp waited for.
  TILEWIRE_DEVICE void release() {
    give_back(behind_);
    if (++behind_ == kStages) behind_ = 0;
  }
  // The same, by who knows which stage that is, and never calls release(): that saves registers.
  TILEWIRE_DEVICE void give_back(uint32_t stage) const {
    const uint32_t empty = empty_ + 8 * stage;
    if (!releases_) return;
    if constexpr (kSharers > 1) {
      ptx::mbarrier_arrive_in_cluster(empty);
    } else {
      ptx::mbarrier_arrive(empty);
    }
  }

  // Passes over stages that other warps wait for and release. None may be held.
  TILEWIRE_DEVICE void skip(uint32_t stages) {
    ahead_.skip(stages);
    behind_ = ahead_.stage;
  }

 private:
  PipelineBarriers<kStages> barriers_;
  PipelineCursor<kStages> ahead_;
  uint32_t behind_ = 0;
  uint32_t empty_;
  bool releases_;
};

}  // namespace tilewire

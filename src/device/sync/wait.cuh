// THE wait for a flag in a kernel, THE consume and THE publish: all words that ranks and CTAs tell each other go
// through these.
//
//   publish: all writers joined; then one thread: its copies are complete at their destination, release store; or, for words
//            that follow each other, one fence and then their stores
//   consume: one thread waits for the word, then may read what was published, through the copy engine too; others
//            after a barrier
//
// A wait ends when the word arrives, when its deadline passes or when the abort word is set. In the last two cases the
// thread has given up: it waits for nothing any more, its kernel goes on with whatever lies in memory and ends by
// itself. Whoever sees the deadline first leaves a fault record and sets the abort word, so that the others follow at
// once.
#pragma once

#include "device/ptx/control.cuh"
#include "device/ptx/memory_order.cuh"
#include "device/ptx/tma.cuh"
#include "device/sync/fault_record.h"

namespace tilewire {

// The same for all waits of a rank; a kernel parameter.
struct WaitLimits {
  uint64_t* abort_word = nullptr;  // in device memory: many CTAs look at it. 0 at rest
  FaultRecord* fault = nullptr;    // in pinned host memory, kNone at rest
  uint64_t timeout_ns = 0;         // of each wait
  int32_t op = 0;
  int32_t rank = 0;
};

// Of one thread, in call `epoch`.
class Waiter {
 public:
  // `pause_ns`: between two looks at a flag. Looks go to memory that others work with.
  TILEWIRE_DEVICE Waiter(const WaitLimits& limits, int32_t role, Epoch epoch, uint32_t pause_ns = 0)
      : limits_(limits), epoch_(epoch), role_(role), pause_ns_(pause_ns) {}

  // Until *flag >= least. False: given up. `word` is the number of the flag, for the record.
  // `timeouts`: how many of them it lasts.
  TILEWIRE_DEVICE bool wait(const uint64_t* flag, uint64_t word, Epoch least, uint32_t timeouts = 1) {
    if (has_given_up_) return false;
    Epoch seen = ptx::load_acquire_sys(flag);
    if (seen >= least) return true;
    const uint64_t begin_ns = ptx::global_timer_ns();
    for (uint32_t polls = 1;; ++polls) {
      if (pause_ns_ > 0) __nanosleep(pause_ns_);
      seen = ptx::load_acquire_sys(flag);
      if (seen >= least) return true;
      if (polls % kPollsPerLook != 0) continue;
      if (ptx::load_relaxed_sys(limits_.abort_word) != 0) break;
      if (ptx::global_timer_ns() - begin_ns <= timeouts * limits_.timeout_ns) continue;
      give_up(KernelFaultKind::deadline, word, least, seen);
      break;
    }
    has_given_up_ = true;
    return false;
  }

  // For a thread that found something else wrong: it leaves the record, and the abort word ends the waits of the
  // others.
  TILEWIRE_DEVICE void give_up(KernelFaultKind kind, uint64_t word, uint64_t expected, uint64_t seen) {
    has_given_up_ = true;
    record(kind, word, expected, seen);
  }

  TILEWIRE_DEVICE bool has_given_up() const { return has_given_up_; }

 private:
  static constexpr uint32_t kPollsPerLook = 32;  // looks at the clock and the abort word are rarer than at the flag

  // Who sets the abort word writes the record. (The claim is in device memory, since a GPU behind PCIe has no atomics
  // on host memory. Ranks on other GPUs of the node set the word, too.)
  TILEWIRE_DEVICE void record(KernelFaultKind kind, uint64_t word, uint64_t expected, uint64_t seen) const {
    auto* abort_word = reinterpret_cast<unsigned long long*>(limits_.abort_word);
    if (atomicCAS_system(abort_word, 0ull, 1ull) != 0) return;
    FaultRecord* fault = limits_.fault;
    fault->kind = kind;
    fault->op = limits_.op;
    fault->rank = limits_.rank;
    fault->role = role_;
    fault->cta = static_cast<int32_t>(blockIdx.x);
    fault->word = word;
    fault->expected = expected;
    fault->seen = seen;
    fault->epoch = epoch_;
    ptx::store_release_sys(&fault->state, FaultRecord::kComplete);
  }

  const WaitLimits& limits_;
  Epoch epoch_;
  int32_t role_;
  uint32_t pause_ns_;
  bool has_given_up_ = false;
};

// False: given up, and what was to be read may not be there.
TILEWIRE_DEVICE bool consume(Waiter& waiter, const uint64_t* flag, uint64_t word, Epoch least) {
  const bool is_here = waiter.wait(flag, word, least);
  ptx::fence_async_global();
  return is_here;
}

// By a whole warp: whether all lanes have what they waited for. What one lane acquired the others may read after this;
// who reads through the copy engine fences first.
TILEWIRE_DEVICE bool all_here(const Waiter& waiter) {
  const bool all = __all_sync(0xffffffff, !waiter.has_given_up());
  __syncwarp();
  return all;
}

// By the thread that issued the copies, or after a barrier with all who wrote. `flag` may lie in a peer's memory.
TILEWIRE_DEVICE void publish(uint64_t* flag, Epoch epoch) {
  ptx::bulk_wait<0>();
  ptx::store_release_sys(flag, epoch);
}

// Its two parts, where several words follow each other and nothing is written or acquired between them: one fence takes
// longer than all their stores.
TILEWIRE_DEVICE void order_publishes() {
  ptx::bulk_wait<0>();
  ptx::fence_sys();
}
TILEWIRE_DEVICE void publish_behind(uint64_t* flag, Epoch epoch) { ptx::store_relaxed_sys(flag, epoch); }

// publish() of a word that only this GPU reads.
TILEWIRE_DEVICE void publish_in_gpu(uint64_t* flag, Epoch epoch) {
  ptx::bulk_wait<0>();
  ptx::store_release_gpu(flag, epoch);
}

}  // namespace tilewire

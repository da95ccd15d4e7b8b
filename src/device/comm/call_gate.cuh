// The gate of every role of a call: waits for the words that a piece of work needs, and holds the records of other
// ranks against the own one before anything of theirs is used.
#pragma once

#include "device/comm/call_view.cuh"

namespace tilewire {

// By a whole warp throughout: the words are shared out among its lanes, and all lanes get the same answer.
class CallGate {
 public:
  static constexpr bool kWaits = true;

  // `pause_ns`: see Waiter.
  TILEWIRE_DEVICE CallGate(const CallSpace& space, int32_t role, uint32_t pause_ns)
      : space_(space), waiter_(space.view().limits, role, space.epoch(), pause_ns) {}

  // False from the first wait on that was given up.
  template <class Role>
  TILEWIRE_DEVICE bool pass(const Role& role, const typename Role::Work& w) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x % 32); i < w.needs; i += 32) pass_word(role.need(w, i));
    return all_here(waiter_);
  }

  // The same by a single thread.
  template <class Role>
  TILEWIRE_DEVICE bool pass_alone(const Role& role, const typename Role::Work& w) {
#pragma unroll 1
    for (int32_t i = 0; i < w.needs; ++i) pass_word(role.need(w, i));
    return !waiter_.has_given_up();
  }

  // consume() for all words of a work: by a single thread whose copies then read what was published.
  template <class Role>
  TILEWIRE_DEVICE bool pass_for_copies(const Role& role, const typename Role::Work& w) {
    const bool is_here = pass_alone(role, w);
    ptx::fence_async_global();
    return is_here;
  }

  // The same for a single word, where a work is used piece by piece.
  TILEWIRE_DEVICE bool pass_word_for_copies(Need need) {
    pass_word(need);
    ptx::fence_async_global();
    return !waiter_.has_given_up();
  }
  // The same by one look at most, where a record that was passed before needs none. False: it is to be passed with a wait.
  TILEWIRE_DEVICE bool pass_at_once_for_copies(Need record, Need need) {
    if (waiter_.has_given_up() || !has_checked(record.word)) return false;
    const uint64_t* word = space_.word(space_.frame().me, need.word);
    if (ptx::load_acquire_sys(word) < space_.epoch() - static_cast<Epoch>(need.lag)) return false;
    ptx::fence_async_global();
    return true;
  }

  // Whether pass_alone() would not wait. By a single thread.
  template <class Role>
  TILEWIRE_DEVICE bool is_open(const Role& role, const typename Role::Work& w) const {
    bool is_open = true;
    for (int32_t i = 0; i < w.needs; ++i) {
      const bool is_here = has_come(role.need(w, i));  // asked always: behind && large kernels spill
      is_open = is_open && is_here;
    }
    return is_open;
  }
  TILEWIRE_DEVICE bool has_come(Need need) const {
    const uint64_t* word = space_.word(space_.frame().me, need.word);
    return ptx::load_relaxed_sys(word) >= space_.epoch() - static_cast<Epoch>(need.lag);
  }

  // Until the first `ctas` CTAs of this rank have finished.
  // That is as good as the waits of their roles, which begin later and say more of what is missing: theirs end first.
  TILEWIRE_DEVICE bool pass_finished(int32_t ctas) {
    // A lane looks at several words at once, for each look takes as long as all.
    for (int32_t first = static_cast<int32_t>(threadIdx.x % 32); first < ctas; first += 32 * kLooksAtOnce) {
      while (!waiter_.has_given_up()) {
        const int32_t missing = first_unfinished(first, ctas);
        if (missing < 0) break;
        waiter_.wait(space_.view().finished + missing, kFinishedWord + missing, space_.epoch(), 2);
      }
    }
    ptx::fence_gpu();
    return all_here(waiter_);
  }

  // For waits and faults of the role that are no words of a work.
  TILEWIRE_DEVICE Waiter& waiter() { return waiter_; }

 private:
  static constexpr int32_t kLooksAtOnce = 5;

  // Of CTAs first, first + 32, ... below `ctas`, kLooksAtOnce of them: one that has not finished, or -1.
  TILEWIRE_DEVICE int32_t first_unfinished(int32_t first, int32_t ctas) const {
    int32_t missing = -1;
#pragma unroll
    for (int32_t i = 0; i < kLooksAtOnce; ++i) {
      const int32_t cta = first + 32 * i;
      if (cta < ctas && ptx::load_relaxed_gpu(space_.view().finished + cta) < space_.epoch()) missing = cta;
    }
    return missing;
  }
  TILEWIRE_DEVICE void pass_word(Need need) {
    const bool is_record = space_.frame().arena.flags.is_begun(need.word);
    if (is_record && has_checked(need.word)) return;
    const bool is_here = waiter_.wait(space_.word(space_.frame().me, need.word), need.word,
                                      space_.epoch() - static_cast<Epoch>(need.lag));
    if (is_record && is_here) check_record(need.word);
  }

  // A begun word needs no second look of a lane in a call.
  TILEWIRE_DEVICE bool has_checked(uint32_t word) const { return word < kRemembered && (checked_ >> word & 1) != 0; }
  TILEWIRE_DEVICE void check_record(uint32_t word) {
    const Rank me = space_.frame().me, peer{static_cast<int32_t>(word)};
    const CallRecord own = space_.own_record();
    const CallRecord seen = *space_.record(me, peer);
    if (seen.agreed_hash != own.agreed_hash) {
      waiter_.give_up(KernelFaultKind::mismatch, word, own.agreed_hash, seen.agreed_hash);
    } else if (seen.sequence != own.sequence) {
      waiter_.give_up(KernelFaultKind::mismatch, word, own.sequence, seen.sequence);
    } else if (word < kRemembered) {
      checked_ |= uint32_t{1} << word;
    }
  }

  static constexpr uint32_t kRemembered = 32;

  const CallSpace& space_;
  Waiter waiter_;
  uint32_t checked_ = 0;
};

}  // namespace tilewire

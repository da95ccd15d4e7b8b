// The gate of a loader whose inputs arrive while the kernel runs: it waits for what each work needs.
#pragma once

#include "device/sync/wait.cuh"

namespace tilewire {

// Of the loading thread. `flags` is the flag area of the own rank, one word each.
class FlagGate {
 public:
  static constexpr bool kMayGiveUp = true;

  TILEWIRE_DEVICE FlagGate(const WaitLimits& limits, const uint64_t* flags, int32_t role)
      : waiter_(limits, role), flags_(flags), epoch_(limits.epoch) {}

  // False from the first wait on that was given up.
  template <class Role>
  TILEWIRE_DEVICE bool pass(const Role& role, const typename Role::Work& w) {
    for (int32_t i = 0; i < w.needs; ++i) {
      const auto need = role.need(w, i);
      waiter_.wait(flags_ + need.word, need.word, epoch_ - static_cast<Epoch>(need.lag));
    }
    ptx::fence_async_global();
    return !waiter_.has_given_up();
  }

 private:
  Waiter waiter_;
  const uint64_t* flags_;
  Epoch epoch_;
};

}  // namespace tilewire

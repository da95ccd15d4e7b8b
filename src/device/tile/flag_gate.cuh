// The gate of a loader whose inputs arrive while the kernel runs: it waits for what each work needs.
#pragma once

#include "device/sync/wait.cuh"

namespace tilewire {

// See OpenGate of load.cuh. `flags` is the flag area of the own rank, one word each.
class FlagGate {
 public:
  static constexpr bool kWaits = true;

  TILEWIRE_DEVICE FlagGate(const WaitLimits& limits, const uint64_t* flags, int32_t role, Epoch epoch)
      : waiter_(limits, role, epoch), flags_(flags), epoch_(epoch) {}

  // By a whole warp, the words shared out among its lanes. False in all lanes from the first wait on that one gave up.
  template <class Role>
  TILEWIRE_DEVICE bool pass(const Role& role, const typename Role::Work& w) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x % 32); i < w.needs; i += 32) {
      const auto need = role.need(w, i);
      waiter_.wait(flags_ + need.word, need.word, epoch_ - static_cast<Epoch>(need.lag));
    }
    return all_here(waiter_);
  }

 private:
  Waiter waiter_;
  const uint64_t* flags_;
  Epoch epoch_;
};

}  // namespace tilewire

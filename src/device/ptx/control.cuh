// Threads and registers: one lane of a warp, barriers of part of a CTA, register shares, the clock of the GPU.
#pragma once

#include "device/ptx/qualifier.cuh"

namespace tilewire::ptx {

// True in one lane of a converged warp. The compiler knows that a single thread runs what depends on it.
TILEWIRE_DEVICE bool elect_one() {
  uint32_t is_chosen;
  asm volatile(
      "{ .reg .pred chosen;\n"
      "elect.sync _|chosen, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, chosen; }"
      : "=r"(is_chosen));
  return is_chosen != 0;
}

// `threads` is a multiple of 32 and the same in all who take part; barrier 0 is __syncthreads.
TILEWIRE_DEVICE void named_barrier_sync(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
TILEWIRE_DEVICE void named_barrier_arrive(uint32_t barrier, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Whole warpgroups. The sum over the CTA must fit what it was launched with, else `raise` waits for ever.
template <int kRegisters>
TILEWIRE_DEVICE void lower_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
TILEWIRE_DEVICE void raise_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// threadIdx.x, read where it stands: nothing that follows from it is kept in registers from before.
TILEWIRE_DEVICE uint32_t thread_anew() {
  uint32_t thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// Of a kernel whose launch says that it begins before the one in front of it in its stream has ended: until that one has, and
// all that it wrote can be seen. By every thread that looks at memory; else returns at once.
TILEWIRE_DEVICE void wait_for_kernel_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// Nanoseconds; the same clock on all SMs of a GPU, in coarse steps.
TILEWIRE_DEVICE uint64_t global_timer_ns() {
  uint64_t now_ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns)::"memory");
  return now_ns;
}

// The same value, which the compiler makes anew wherever it is used instead of keeping it in a register.
TILEWIRE_DEVICE uint32_t made_anew(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace tilewire::ptx

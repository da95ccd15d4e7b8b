// Loads and stores that order others, and the fences between ordinary accesses and those of the copy engine and the
// tensor cores (the async proxy).
#pragma once

#include "device/ptx/qualifier.cuh"

namespace tilewire::ptx {

TILEWIRE_DEVICE uint64_t load_acquire_gpu(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

TILEWIRE_DEVICE uint64_t load_acquire_sys(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

// For words that are data themselves and order nothing, such as an abort word, or with a fence behind.
TILEWIRE_DEVICE uint64_t load_relaxed_gpu(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

TILEWIRE_DEVICE uint64_t load_relaxed_sys(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

TILEWIRE_DEVICE void store_release_gpu(uint64_t* word, uint64_t value) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

TILEWIRE_DEVICE void store_release_sys(uint64_t* word, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

TILEWIRE_DEVICE void store_relaxed_sys(uint64_t* word, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Raises the word to `value` if it is lower; orders as a release store does.
TILEWIRE_DEVICE void max_release_sys(uint64_t* word, uint64_t value) {
  asm volatile("red.release.sys.global.max.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Counts on a counter of this GPU alone to `last`, then begins again at 0, and gives the number before: what this thread
// wrote or acquired before is seen by who counts after it, and the other way round.
TILEWIRE_DEVICE uint32_t count_around_acq_rel_gpu(uint32_t* counter, uint32_t last) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(last) : "memory");
  return before;
}

// The same, and orders nothing.
TILEWIRE_DEVICE uint32_t count_around(uint32_t* counter, uint32_t last) { return atomicInc(counter, last); }

// Two words at once that each say for themselves that they are there; a reader may see them torn. 16-byte aligned.
TILEWIRE_DEVICE void store_pair_relaxed_sys(uint64_t* pair, uint64_t first, uint64_t second) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(pair), "l"(first), "l"(second) : "memory");
}

// What this thread wrote or acquired before comes before its stores after, for every observer.
TILEWIRE_DEVICE void fence_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

// The same for observers on this GPU.
TILEWIRE_DEVICE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// In every thread that wrote shared memory the copy engine or a tensor core reads next, before the barrier.
TILEWIRE_DEVICE void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Between an acquire and copies that read what it made visible. The form for all state spaces is a full memory barrier.
TILEWIRE_DEVICE void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

}  // namespace tilewire::ptx

// Barriers in shared memory that count arrivals and bytes of asynchronous copies.
#pragma once

#include "device/ptx/qualifier.cuh"

namespace tilewire::ptx {

TILEWIRE_DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// After the inits, before the thread barrier that lets copies and other CTAs of the cluster use them.
TILEWIRE_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Arrives once and adds `bytes` to what the current phase waits for. A tensor copy counts its full box, also where part
// of it lies outside the tensor.
TILEWIRE_DEVICE void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

TILEWIRE_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives on a barrier of a CTA of the cluster (an address from map_to_cta). It says "I have read", and publishes no
// data: the form with .release.cluster would be a full memory barrier in front of every arrival.
TILEWIRE_DEVICE void mbarrier_arrive_in_cluster(uint32_t cluster_barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_barrier) : "memory");
}

// Whether the phase of this parity is over; may suspend the thread for a while first. A fresh barrier is in a phase of
// parity 0, so a test for parity 1 passes at once.
TILEWIRE_DEVICE bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t is_over;
  asm volatile(
      "{ .reg .pred over;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over; }"
      : "=r"(is_over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_over != 0;
}

// The same for what another CTA of the cluster has written.
TILEWIRE_DEVICE bool mbarrier_try_wait_cluster(uint32_t barrier, uint32_t parity) {
  uint32_t is_over;
  asm volatile(
      "{ .reg .pred over;\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 over, [%1], %2;\n"
      "selp.u32 %0, 1, 0, over; }"
      : "=r"(is_over)
      : "r"(barrier), "r"(parity)
      : "memory");
  return is_over != 0;
}

}  // namespace tilewire::ptx

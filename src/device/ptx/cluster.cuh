// CTAs that run together and reach each other's shared memory.
#pragma once

#include "device/ptx/qualifier.cuh"

namespace tilewire::ptx {

TILEWIRE_DEVICE uint32_t cta_rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The address of the same place in the shared memory of CTA `rank` of the cluster.
TILEWIRE_DEVICE uint32_t map_to_cta(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// Shared memory of any CTA of the cluster; the address is from map_to_cta.
TILEWIRE_DEVICE void store_in_cluster(uint32_t cluster_address, uint32_t value) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(cluster_address), "r"(value) : "memory");
}
// The same asynchronously: whoever waits for the barrier, which lies in that CTA too and counts the four bytes, sees it.
TILEWIRE_DEVICE void store_async_in_cluster(uint32_t cluster_address, uint32_t value, uint32_t cluster_barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(cluster_address),
               "r"(value), "r"(cluster_barrier)
               : "memory");
}
TILEWIRE_DEVICE void fence_cluster() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }

TILEWIRE_DEVICE uint32_t load_shared(uint32_t address) {
  uint32_t value;
  asm volatile("ld.volatile.shared::cta.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
TILEWIRE_DEVICE void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.volatile.shared::cta.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

TILEWIRE_DEVICE void store_shared_float(uint32_t address, float value) {
  asm volatile("st.volatile.shared::cta.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
TILEWIRE_DEVICE void store_shared_pair(uint32_t address, uint32_t first, uint32_t second) {
  asm volatile("st.volatile.shared::cta.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(first), "r"(second) : "memory");
}
TILEWIRE_DEVICE void store_shared_four(uint32_t address, int4 four) {
  asm volatile("st.volatile.shared::cta.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(four.x), "r"(four.y),
               "r"(four.z), "r"(four.w)
               : "memory");
}
TILEWIRE_DEVICE int4 load_shared_four(uint32_t address) {
  int4 four;
  asm volatile("ld.volatile.shared::cta.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(four.x), "=r"(four.y), "=r"(four.z), "=r"(four.w)
               : "r"(address)
               : "memory");
  return four;
}
TILEWIRE_DEVICE float2 load_shared_pair(uint32_t address) {
  float2 pair;
  asm volatile("ld.volatile.shared::cta.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(address) : "memory");
  return pair;
}
TILEWIRE_DEVICE uint4 load_shared_quad(uint32_t address) {
  uint4 quad;
  asm volatile("ld.volatile.shared::cta.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(quad.x), "=r"(quad.y), "=r"(quad.z), "=r"(quad.w)
               : "r"(address)
               : "memory");
  return quad;
}

// All threads of the cluster, whole warps. Relaxed: it publishes no data (the release form is a full memory barrier).
TILEWIRE_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
TILEWIRE_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

}  // namespace tilewire::ptx

// The bulk copy engine: tiles through tensor maps, and plain bytes. Coordinates count elements, innermost first.
#pragma once

#include "device/ptx/qualifier.cuh"

#include <cuda.h>

namespace tilewire::ptx {

TILEWIRE_DEVICE void prefetch_tensor_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

TILEWIRE_DEVICE void tma_load(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t x, int32_t y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

TILEWIRE_DEVICE void tma_load(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t x, int32_t y, int32_t z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
      "[%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// Into the same place of every CTA whose bit is set in `ctas`; completes on the same barrier of each.
TILEWIRE_DEVICE void tma_load_multicast(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t x, int32_t y,
                                        uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(ctas)
      : "memory");
}

TILEWIRE_DEVICE void tma_load_multicast(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t x, int32_t y,
                                        int32_t z, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(ctas)
      : "memory");
}

TILEWIRE_DEVICE void tma_store(const CUtensorMap* map, uint32_t from, int32_t x, int32_t y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from),
               "r"(x), "r"(y)
               : "memory");
}

TILEWIRE_DEVICE void tma_store(const CUtensorMap* map, uint32_t from, int32_t x, int32_t y, int32_t z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z)
               : "memory");
}

// Of arrays with four dimensions.
TILEWIRE_DEVICE void tma_load(uint32_t to, const CUtensorMap* map, uint32_t barrier, int32_t x, int32_t y, int32_t z,
                              int32_t u) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(u)
      : "memory");
}
TILEWIRE_DEVICE void tma_store(const CUtensorMap* map, uint32_t from, int32_t x, int32_t y, int32_t z, int32_t u) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z), "r"(u)
               : "memory");
}

// `bytes` and both addresses are multiples of 16.
TILEWIRE_DEVICE void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

TILEWIRE_DEVICE void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes)
               : "memory");
}

TILEWIRE_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// 16 bytes by each thread for itself, which are there behind its wait for all of its own.
TILEWIRE_DEVICE void copy_async_16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
TILEWIRE_DEVICE void copy_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// At most kPending groups of this thread still read shared memory. Says nothing about the destination.
template <int kPending>
TILEWIRE_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// At most kPending groups of this thread are not yet complete at their destination.
template <int kPending>
TILEWIRE_DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tilewire::ptx

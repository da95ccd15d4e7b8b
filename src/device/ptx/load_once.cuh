// Loads of data that an SM reads once.
#pragma once

#include "device/ptx/qualifier.cuh"

namespace tilewire::ptx {

// Leaves in the SM's own cache what is there. Behind acquires that come before it.
TILEWIRE_DEVICE uint4 load_once(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

}  // namespace tilewire::ptx

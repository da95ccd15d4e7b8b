// From accumulator registers to shared memory.
#pragma once

#include "device/ptx/qualifier.cuh"

namespace tilewire::ptx {

// Four 8x8 matrices of 16-bit elements, from the layout in which wgmma leaves its result. Lane i gives the address of
// row i % 8 of matrix i / 8.
TILEWIRE_DEVICE void stmatrix_x4(uint32_t row_address, uint32_t m0, uint32_t m1, uint32_t m2, uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(m0), "r"(m1),
               "r"(m2), "r"(m3)
               : "memory");
}

}  // namespace tilewire::ptx

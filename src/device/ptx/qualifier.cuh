// What every function of device/ptx is: one PTX instruction, inlined, with no policy of its own. Addresses of shared
// memory are 32-bit addresses of the shared window throughout (shared_address).
#pragma once

#include <cstdint>

#define TILEWIRE_DEVICE __device__ __forceinline__

namespace tilewire::ptx {

TILEWIRE_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

}  // namespace tilewire::ptx

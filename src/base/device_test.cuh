// For programs that test on a GPU and are skipped where there is none.
#pragma once

#include <cuda_runtime.h>

namespace tilewire {

inline constexpr int kSkipped = 77;  // the exit status that ctest takes for "skipped"

inline bool has_gpu() {
  int devices = 0;
  return cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
}

}  // namespace tilewire

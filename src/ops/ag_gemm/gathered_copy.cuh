// The gathered rows as a result of a call: a launch of its own behind the fused kernel brings them to where the caller
// wants them. Until the rank's next call begins no other rank writes the half that they lie in. Host code.
#pragma once

#include "device/tile/tensor_map.cuh"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace tilewire {
struct DeviceRankState;
}

namespace tilewire::ag_gemm {

// A kernel parameter. All addresses and pitches are multiples of 16 bytes.
struct GatheredCopy {
  DeviceMatrix gathered[2];   // in the arena, by half
  DeviceMatrix input;         // the caller's shard: own rows need not be among the gathered ones
  int64_t first_own_row = 0;  // among all rows
  std::byte* to = nullptr;    // [all rows, K]
  int64_t to_pitch_bytes = 0;
  const DeviceRankState* state = nullptr;  // whose epoch is that of the call
  const uint64_t* abort_word = nullptr;    // set: the rows become NaN
};

// Loads the kernel, so that its launch does not.
void prepare_gathered_copy();

// Asynchronous, on the current device. `ctas` are busy until the rows are copied.
void launch_gathered_copy(const GatheredCopy& copy, int32_t ctas, cudaStream_t stream);

}  // namespace tilewire::ag_gemm

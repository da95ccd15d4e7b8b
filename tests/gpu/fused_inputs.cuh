// Inputs of a call that a kernel in front of it writes, for graphs that are replayed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tilewire {

// Rows [first, first + rows) of all ranks' rows, in bf16; `pitch` in elements.
struct CodedShard {
  uint16_t* a;
  int64_t first, rows, k, pitch;
};

// Raises *salt by one, waits for a random time that depends on it and on the shard, and writes the rows anew.
void enqueue_next_inputs(const CodedShard& shard, int64_t* salt, uint32_t most_delay_us, cudaStream_t stream);

}  // namespace tilewire

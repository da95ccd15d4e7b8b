#include "ops/ag_gemm/device_entry.cuh"

namespace tilewire::ag_gemm {

const void* fused_ping_pong_128x192(DataType type, bool is_b_n_major) {
  return fused_entry<WithSpareRoom<PingPong128x192>>(type, is_b_n_major);
}

}  // namespace tilewire::ag_gemm

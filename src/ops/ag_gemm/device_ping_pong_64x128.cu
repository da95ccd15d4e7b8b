#include "ops/ag_gemm/device_entry.cuh"

namespace tilewire::ag_gemm {

const void* fused_ping_pong_64x128(DataType type, bool is_b_n_major) {
  return fused_entry<WithSpareRoom<PingPong64x128>>(type, is_b_n_major);
}

}  // namespace tilewire::ag_gemm

#include "ops/gemm_rs/device_entry.cuh"

namespace tilewire::gemm_rs {

const void* fused_ping_pong_64x128(DataType type, bool is_b_n_major) {
  return fused_entry<WithRoomForSums<PingPong64x128>>(type, is_b_n_major);
}

}  // namespace tilewire::gemm_rs

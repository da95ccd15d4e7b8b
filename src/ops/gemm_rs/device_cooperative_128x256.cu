#include "ops/gemm_rs/device_entry.cuh"

namespace tilewire::gemm_rs {

const void* fused_cooperative_128x256(DataType type, bool is_b_n_major) {
  return fused_entry<WithRoomForSums<Cooperative128x256>>(type, is_b_n_major);
}

}  // namespace tilewire::gemm_rs

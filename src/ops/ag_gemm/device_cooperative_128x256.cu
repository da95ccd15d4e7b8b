#include "ops/ag_gemm/device_entry.cuh"

namespace tilewire::ag_gemm {

const void* fused_cooperative_128x256(DataType type, bool is_b_n_major) {
  return fused_entry<WithSpareRoom<Cooperative128x256>>(type, is_b_n_major);
}

}  // namespace tilewire::ag_gemm

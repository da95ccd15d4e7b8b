#include "device/tile/gemm_entry.cuh"

namespace tilewire {

const void* cooperative_128x256_entry(DataType type, bool is_b_n_major) {
  return gemm_entry<Cooperative128x256>(type, is_b_n_major);
}

}  // namespace tilewire

#include "device/tile/gemm_entry.cuh"

namespace tilewire {

const void* ping_pong_128x128_entry(DataType type, bool is_b_n_major) {
  return gemm_entry<PingPong128x128>(type, is_b_n_major);
}

}  // namespace tilewire

#include "ops/moe_dispatch/device_entry.cuh"

namespace tilewire::moe_dispatch {

const void* fused_ping_pong_64x128(DataType type, bool is_b_n_major) {
  return fused_entry<WithRoomForRows<PingPong64x128>>(type, is_b_n_major);
}

}  // namespace tilewire::moe_dispatch

#include "ops/moe_dispatch/device_entry.cuh"

namespace tilewire::moe_dispatch {

const void* fused_cooperative_128x256_in_line(DataType type, bool is_b_n_major) {
  return fused_entry<WithRoomForRows<Cooperative128x256InLine>>(type, is_b_n_major);
}

}  // namespace tilewire::moe_dispatch

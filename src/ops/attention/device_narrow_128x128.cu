#include "ops/attention/device_entry.cuh"

namespace tilewire::attention {

const void* fused_narrow_128x128(DataType type) { return fused_entry<AttentionNarrow128x128>(type); }

}  // namespace tilewire::attention

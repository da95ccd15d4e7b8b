#include "ops/attention/device_entry.cuh"

namespace tilewire::attention {

const void* fused_narrow_192x96(DataType type) { return fused_entry<AttentionNarrow192x96>(type); }

}  // namespace tilewire::attention

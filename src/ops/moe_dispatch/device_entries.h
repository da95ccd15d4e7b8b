// The compiled kernels, a source file a form: entries take FusedParameters.
#pragma once

#include <tilewire/data_type.h>

namespace tilewire::moe_dispatch {

const void* fused_ping_pong_128x128(DataType type, bool is_b_n_major);
const void* fused_cooperative_128x256_in_line(DataType type, bool is_b_n_major);

}  // namespace tilewire::moe_dispatch

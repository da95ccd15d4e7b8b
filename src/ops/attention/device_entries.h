// The compiled kernels, a source file a form: entries take FusedParameters.
#pragma once

#include <tilewire/data_type.h>

namespace tilewire::attention {

const void* fused_wide_128x128(DataType type);
const void* fused_narrow_192x96(DataType type);

}  // namespace tilewire::attention

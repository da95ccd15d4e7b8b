// The compiled kernels, a source file a form: entries take GemmParameters.
#pragma once

#include <tilewire/data_type.h>

namespace tilewire {

const void* cooperative_128x256_entry(DataType type, bool is_b_n_major);
const void* ping_pong_128x192_entry(DataType type, bool is_b_n_major);
const void* ping_pong_128x128_entry(DataType type, bool is_b_n_major);
const void* ping_pong_64x128_entry(DataType type, bool is_b_n_major);

}  // namespace tilewire

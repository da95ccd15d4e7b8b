// The four kernels of a form.
#pragma once

#include "device/tile/form_kernel.cuh"
#include "ops/moe_dispatch/device_entries.h"
#include "ops/moe_dispatch/kernel.cuh"

namespace tilewire::moe_dispatch {

template <class Form>
const void* fused_entry(DataType type, bool is_b_n_major) {
  return form_kernel<Form>(type, is_b_n_major, []<class Config>(Config) { return &fused_kernel<Config>; });
}

}  // namespace tilewire::moe_dispatch

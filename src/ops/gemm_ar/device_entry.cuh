// The four kernels of a form.
#pragma once

#include "device/tile/form_kernel.cuh"
#include "ops/gemm_ar/device_entries.h"
#include "ops/gemm_ar/kernel.cuh"

namespace tilewire::gemm_ar {

template <class Form>
const void* fused_entry(DataType type, bool is_b_n_major) {
  return form_kernel<Form>(type, is_b_n_major, []<class Config>(Config) { return &fused_kernel<Config>; });
}

}  // namespace tilewire::gemm_ar

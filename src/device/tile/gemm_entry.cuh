// The four kernels of a form.
#pragma once

#include "device/tile/form_kernel.cuh"
#include "device/tile/gemm_entries.h"

namespace tilewire {

template <class Form>
const void* gemm_entry(DataType type, bool is_b_n_major) {
  return form_kernel<Form>(type, is_b_n_major, []<class Config>(Config) { return &gemm_kernel<Config>; });
}

}  // namespace tilewire

// The four kernels of a form.
#pragma once

#include "ops/ag_gemm/device_entries.h"
#include "ops/ag_gemm/kernel.cuh"

namespace tilewire::ag_gemm {

template <class Form>
const void* fused_entry(DataType type, bool is_b_n_major) {
  const auto of = [&]<class Element>(Element) {
    return is_b_n_major ? reinterpret_cast<const void*>(&fused_kernel<TileConfig<Form, Element, true>>)
                        : reinterpret_cast<const void*>(&fused_kernel<TileConfig<Form, Element, false>>);
  };
  return type == DataType::bf16 ? of(__nv_bfloat16{}) : of(__half{});
}

}  // namespace tilewire::ag_gemm

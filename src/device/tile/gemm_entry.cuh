// The four kernels of a form.
#pragma once

#include "device/tile/gemm_entries.h"
#include "device/tile/gemm_kernel.cuh"

namespace tilewire {

template <class Form>
const void* gemm_entry(DataType type, bool is_b_n_major) {
  const auto of = [&]<class Element>(Element) {
    return is_b_n_major ? reinterpret_cast<const void*>(&gemm_kernel<TileConfig<Form, Element, true>>)
                        : reinterpret_cast<const void*>(&gemm_kernel<TileConfig<Form, Element, false>>);
  };
  return type == DataType::bf16 ? of(__nv_bfloat16{}) : of(__half{});
}

}  // namespace tilewire

// The four kernels of a form.
#pragma once

#include "device/tile/gemm_kernel.cuh"

#include <tilewire/data_type.h>

namespace tilewire {

// `address_of(config)`: of the kernel that is instantiated with that TileConfig.
template <class Form, class AddressOf>
const void* form_kernel(DataType type, bool is_b_n_major, const AddressOf& address_of) {
  const auto of = [&]<class Element>(Element) {
    return is_b_n_major ? reinterpret_cast<const void*>(address_of(TileConfig<Form, Element, true>{}))
                        : reinterpret_cast<const void*>(address_of(TileConfig<Form, Element, false>{}));
  };
  return type == DataType::bf16 ? of(__nv_bfloat16{}) : of(__half{});
}

}  // namespace tilewire

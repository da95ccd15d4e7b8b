// The two kernels of a form.
#pragma once

#include "ops/attention/device_entries.h"
#include "ops/attention/kernel.cuh"

namespace tilewire::attention {

template <class Form>
const void* fused_entry(DataType type) {
  if (type == DataType::bf16) return reinterpret_cast<const void*>(&fused_kernel<Form, __nv_bfloat16>);
  return reinterpret_cast<const void*>(&fused_kernel<Form, __half>);
}

}  // namespace tilewire::attention

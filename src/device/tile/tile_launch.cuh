// Launches of kernels that are made of a tile form: kGemmThreads threads a CTA, one CTA an SM, clusters. Host code.
#pragma once

#include "device/tile/tile_form.h"

#include <cuda_runtime_api.h>

namespace tilewire {

// SMs of the current device.
int32_t sm_count();

// Gives the kernel the shared memory of its form, once, and says how many clusters of it run at once on the current
// device: fewer than SMs / size where SMs of a group do not fill a cluster; a persistent grid with one cluster more
// takes twice the time.
int32_t prepare_tile_kernel(const void* kernel, const FormNumbers& form);

// The same for a grid of so many CTAs, all of which must run at once. Throws Error(resource) when they do not fit.
void prepare_tile_grid(const void* kernel, const FormNumbers& form, int32_t ctas);

// A kernel that waits_itself calls ptx::wait_for_kernel_before() first of all, so that its launch takes place while the one before it
// in the stream ends.
enum class TileLaunch : uint8_t { behind, waits_itself };

// `parameters` is the kernel's only one. `ctas` is a multiple of the form's launch_ctas. Throws Error(internal) if
// the launch fails.
void launch_tile_kernel(const void* kernel, const FormNumbers& form, int32_t ctas, void* parameters,
                        cudaStream_t stream, TileLaunch how = TileLaunch::behind);

}  // namespace tilewire

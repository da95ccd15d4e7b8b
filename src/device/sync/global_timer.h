// The clock in which kernels note times.
#pragma once

#include <cstdint>
#include <functional>

namespace tilewire {

// Nanoseconds of the current GPU's global timer, read while the call runs. Throws what CUDA says.
using GpuTimer = std::function<uint64_t()>;

// The real one (global_timer.cu).
uint64_t read_global_timer();

}  // namespace tilewire

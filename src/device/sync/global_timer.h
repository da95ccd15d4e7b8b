// The clock in which kernels note times.
#pragma once

#include <cstdint>
#include <functional>

namespace tilewire {

// Nanoseconds of a GPU's global timer, read while the call runs and the GPU is the current one. Throws what CUDA says.
using GpuClock = std::function<uint64_t()>;

// Makes one for the current GPU, with all that reading it needs, so that a look takes no longer than it must.
using GpuClockMaker = std::function<GpuClock()>;

// The real one (global_timer.cu).
GpuClock make_global_clock();

}  // namespace tilewire

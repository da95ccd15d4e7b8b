// The timeline of a GPU rank: what its kernels have noted, as events of its trace log.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "device/sync/global_timer.h"
#include "executor/gpu_rank.h"
#include "executor/kernel_faults.h"
#include "executor/trace.h"

namespace tilewire {

class GpuTrace {
 public:
  // From now on kernels that are launched note at most about `events` pieces of work; graphs do as the launches did that
  // they captured. When nothing runs. Throws Error(resource) for memory.
  GpuTrace(GpuRank& gpu, const GpuClockMaker& make_clock, int64_t events);
  ~GpuTrace();  // they note no more
  GpuTrace(const GpuTrace&) = delete;
  GpuTrace& operator=(const GpuTrace&) = delete;

  // Moves what has been noted into `log`. When nothing runs.
  void move_to(TraceLog& log, const KernelFaults& kernels);
  // Kernels launched from now on note nothing, until again() is called.
  void pause() { gpu_.set_trace_on(false); }
  void again() { gpu_.set_trace_on(true); }

 private:
  void learn_clock(const GpuClockMaker& make_clock);

  GpuRank& gpu_;
  int64_t clock_offset_ns_ = 0;  // of trace_clock_ns() behind the GPU's timer
};

}  // namespace tilewire

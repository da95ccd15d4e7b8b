// The timelines of a rank's calls: the recording that is under way, what is kept of it, and the file that the option
// trace_file asks for.
//
// Thread-safety: one thread at a time, but for ring() and is_on(), which are a call's.
#pragma once

#include <tilewire/options.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "executor/gpu_rank.h"
#include "executor/gpu_trace.h"
#include "executor/kernel_faults.h"
#include "executor/trace.h"
#include "transport/bootstrap/control.h"

namespace tilewire {

// Whose calls they are. All of it outlives the SessionTrace.
struct TracedRank {
  const Options& options;
  const ControlConnection& control;
  GpuRank* gpu = nullptr;                 // nullptr on CPU ranks
  const KernelFaults* kernels = nullptr;  // likewise
  GpuClockMaker gpu_clock{};
  // Until no kernel of a communicator that lives runs. False: of a dead one some still do, and are not looked at.
  std::function<bool()> await_gpu{};
};

class SessionTrace {
 public:
  explicit SessionTrace(TracedRank of) : of_(std::move(of)) {}

  bool is_on() const { return is_on_; }
  // nullptr while nothing is recorded.
  TraceRing* ring(const char* role, int32_t worker) { return is_on_ ? log_->ring(role, worker) : nullptr; }

  // Recording from the next call on, in place of what was recorded before; nothing while one is under way. No kernel runs.
  void start();
  void stop();
  // Since creation, those of recordings that are no longer kept too.
  TraceCounts counts();
  // Of the recording that is kept, from event number `first` on, as counts() numbers them.
  TraceRecord record(int64_t first);

  // Where the option trace_file is set: one is under way from creation to close.
  void start_file();
  void finish_file();
  // Kernels note no more; before the rank leaves its GPU.
  void leave_gpu() { gpu_.reset(); }

 private:
  void start_gpu();
  void take_gpu();
  std::string where() const;
  std::string path() const;
  TraceAbout about(int64_t dropped) const;

  TracedRank of_;
  std::unique_ptr<TraceLog> log_;  // since the first start()
  std::unique_ptr<GpuTrace> gpu_;  // likewise
  bool is_on_ = false;
  TraceCounts forgotten_;  // of the recordings before
};

}  // namespace tilewire

// What a rank on a GPU has beside its arena, for all calls of its communicator: the GPU, the state from which kernels
// take their epochs, the record in which they say what went wrong, and the order of the streams on which calls come.
//
// No CUDA header is needed to use this one. Thread-safety: fault(), take_remark(), is_idle() and has_given_up() from any
// thread, also beside close() and behind it; everything else by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/unique_fd.h"
#include "device/comm/device_rank.h"
#include "device/sync/call_remark.h"
#include "device/sync/noted_works.h"
#include "device/sync/roll_call.h"
#include "memory/arena.h"
#include "memory/gpu_id.h"
#include "transport/command_queue.h"

namespace tilewire {

struct CudaDriver;

struct GpuPlace {
  Rank rank;
  int64_t device = -1;  // number of the GPU; -1: `on_host` modulo their number
  int32_t on_host = 0;  // place of the rank among those of its host
  int64_t sms = 0;      // that its kernels may take; 0: all
};

class GpuRank {
 public:
  virtual ~GpuRank() = default;

  virtual int32_t device() const = 0;
  virtual int32_t sms() const = 0;
  virtual GpuId id() const = 0;
  virtual std::string pci_address() const = 0;
  virtual int32_t gpu_sms() const = 0;  // of the whole GPU
  virtual bool has_mps() const = 0;     // kernels of several processes run on the GPU at once
  virtual std::unique_ptr<Arena> make_arena(const ArenaConfig& config) = 0;
  // Once, behind make_arena(): the next call gets the epoch behind `last`.
  virtual void start(Epoch last) = 0;
  // A ring that kernels reach too, with its place in DeviceRank: that of a Ring, or kArrivalRing.
  virtual CommandRing make_ring(int32_t number, uint32_t entries) = 0;
  static constexpr int32_t kArrivalRing = kRings;
  // The page of a roll-call: made here, with a descriptor for the others, or that of rank `owner`.
  virtual UniqueFd make_roll_call_page() = 0;
  virtual void map_roll_call_page(const UniqueFd& fd, Rank owner) = 0;
  // This rank's part, on that page; `part` without it. Gives what the page says when the part has ended, and gives the
  // page back.
  virtual RollCallPage hold_roll_call(const RollCallKernel& kernel, RollCallPart part) = 0;
  // For kernels; `timeout_ns` of each wait. Peers must have been mapped. The arena must live.
  virtual DeviceRank device_rank(uint64_t timeout_ns) const = 0;
  // Room for notes of about `events` pieces of work, for whom device_rank() is given to. Once; no kernel runs.
  virtual void make_trace(int64_t events) = 0;
  // Whether kernels that are launched from now on note what they do.
  virtual void set_trace_on(bool is_on) = 0;
  // What they have noted since the last time. No kernel runs.
  virtual NotedWorks take_notes() = 0;
  // Written by kernels at any time, see its `state`.
  virtual const FaultRecord& fault() const = 0;
  // What kernels have left to say, each once: of the earliest call first.
  virtual std::optional<CallRemark> take_remark() = 0;
  // Whether a kernel of this rank has given up, or was told to by one of its node. Copies from the GPU; false when closed.
  virtual bool has_given_up() const = 0;

  // Of the last call that has ended well: one that was given up leaves it as it was. Copies from the GPU; no kernel runs.
  virtual Epoch last_epoch() const = 0;

  // With the GPU's context current, as kernels need it.
  virtual void with_context(const std::function<void()>& f) const = 0;
  // `stream` is a cudaStream_t. Calls on different streams follow each other in the order in which they were put there.
  virtual bool is_capturing(void* stream) const = 0;
  virtual void before_launch(void* stream) = 0;
  virtual void after_launch(void* stream) = 0;
  // Whether all calls that were launched have ended, but for replays of graphs; true when closed.
  virtual bool is_idle() const = 0;

  // When no kernel of the rank runs any more. Idempotent.
  virtual void close() noexcept = 0;
};

// Throws Error(unavailable) without a GPU or a driver, or where Tilewire was built without CUDA; Error(invalid_argument)
// for a number of SMs that the GPU does not have. `driver`: nullptr for that of this process.
std::unique_ptr<GpuRank> open_gpu_rank(const GpuPlace& place, const CudaDriver* driver);

}  // namespace tilewire

// Tests only: a CUDA driver over memory files of the host, so that GPU memory is tried where no GPU is. Addresses are
// host addresses, which a test may touch; descriptors travel between processes as real ones do. It is strict: pages,
// sizes, current contexts and leftover objects are checked as the real one checks them, and more. Nothing takes time:
// what is put into a stream is done.
//
// Thread-safety: the driver's functions from any thread; the rest while none of them runs.
#pragma once

#include <cstdint>
#include <string>

#include "memory/cuda/driver.h"

namespace tilewire {

struct FakeGpuConfig {
  int devices = 2;
  int sms = 132;
  int64_t page_bytes = int64_t{2} << 20;
  int64_t memory_bytes = int64_t{1} << 30;  // of all devices together
  bool can_access_peers = true;
  bool has_mapping = true;
  bool has_descriptors = true;
  bool has_rdma = true;
  bool has_dma_buf = true;
  bool has_mps = true;
  int nic_write_order = 100;  // 0: none, 100: for the owner, 200: for all devices
  bool has_nic_flush = true;
};

// One a process, as the driver is. A process made by fork() gets CUDA_ERROR_NOT_INITIALIZED until it calls start().
class FakeGpu {
 public:
  static const CudaDriver& driver();
  // Forgets everything, as a new process would.
  static void start(const FakeGpuConfig& config = {});
  // Objects that have not been given back: addresses, allocations, mappings, contexts (retained or pushed), streams,
  // pinned memory. The text lists them: "2 mappings, 1 stream".
  static int64_t live();
  static std::string live_text();
  // The n-th call from now, n >= 1, gives `result` and does nothing; calls that give something back are not counted.
  // 0: none.
  static void fail_call(int64_t n, CUresult result = CUDA_ERROR_OUT_OF_MEMORY);
  // The name of the function that failed so, or "" when it has not come to that.
  static std::string failed();
  // A stream of which the driver says that a graph is captured on it.
  static CUstream captured_stream();
  // How often what network cards have written was waited for.
  static int64_t nic_flushes();
  // Calls that were refused because the process was forked, or that broke a rule of the driver.
  static int64_t broken_rules();
};

}  // namespace tilewire

#include "memory/cuda/cuda_nic_access.h"

#include <fmt/format.h>

#include <utility>

namespace tilewire {
namespace {

std::string gpu_text(const CudaDevice& device) { return fmt::format("CUDA device {}", device.ordinal()); }

}  // namespace

CudaNicAccess::CudaNicAccess(std::shared_ptr<const CudaDevice> device, const CudaArena& arena)
    : device_(std::move(device)), arena_(arena) {
  has_order_ = device_->attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING) >=
               CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
  has_flush_ = (device_->attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS) &
                CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) != 0;
}

std::string CudaNicAccess::obstacle() const {
  if (!device_->has_rdma()) return fmt::format("network cards cannot reach mapped memory of {}", gpu_text(*device_));
  if (has_order_ || has_flush_) return "";
  return fmt::format("{} neither orders what network cards write nor can be told to", gpu_text(*device_));
}

void CudaNicAccess::flush() const {
  const CudaContext current(*device_, gpu_text(*device_));
  device_->check(device_->driver().flush_nic_writes(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                                    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER),
                 {.name = "cuFlushGPUDirectRDMAWrites",
                  .purpose = "wait for what network cards have written",
                  .where = gpu_text(*device_)});
}

}  // namespace tilewire

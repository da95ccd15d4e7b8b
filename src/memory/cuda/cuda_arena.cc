#include "memory/cuda/cuda_arena.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/ids_format.h"
#include "memory/cuda/cuda_device.h"
#include "memory/cuda/cuda_nic_access.h"
#include "memory/cuda/cuda_space.h"
#include "memory/cuda/pinned_memory.h"

namespace tilewire {

std::shared_ptr<const CudaDevice> open_cuda_device(int ordinal) {
  return std::make_shared<const CudaDevice>(ordinal, cuda_driver());
}

CudaArena::CudaArena(std::shared_ptr<const CudaDevice> device, const ArenaConfig& config)
    : Arena(config, device->page_bytes()), device_(std::move(device)) {
  const int64_t bytes = layout().total_bytes();
  control_page_ = std::make_unique<PinnedMemory>(
      PinnedMemory::make(device_, ControlPage::kBytes, where(), "control page of the arena"));
  own_ = std::make_unique<CudaSpace>(device_, bytes, where(), "own arena");
  peers_.resize(static_cast<size_t>(layout().flags.ranks));
  start(own_->base(), config, control_page_->host());
}

CudaArena::~CudaArena() { finish(); }

std::shared_ptr<const NicAccess> CudaArena::nic_access() const {
  return std::make_shared<const CudaNicAccess>(device_, *this);
}

std::byte* CudaArena::control_on_gpu() const { return control_page_ ? control_page_->on_gpu() : nullptr; }

void CudaArena::commit(ArenaRange range) {
  descriptors_.reserve(descriptors_.size() + 1);
  UniqueFd fd = own_->map_new(range);
  try {
    add_export({range, fd.get()});
  } catch (...) {
    own_->unmap(range);
    throw;
  }
  descriptors_.push_back(std::move(fd));
}

void CudaArena::uncommit(ArenaRange range) noexcept {
  const auto same = [range](const ArenaExport& e) { return e.range == range; };
  const auto at = std::find_if(exports().begin(), exports().end(), same);
  if (at == exports().end()) return;
  std::erase_if(descriptors_, [fd = at->fd](const UniqueFd& d) { return d.get() == fd; });
  drop_export(range);
  own_->unmap(range);
}

void CudaArena::map_peer_range(Rank p, ArenaRange range, UniqueFd fd) {
  check_peer_range(p, range);
  std::unique_ptr<CudaSpace>& space = peers_[static_cast<size_t>(p.value)];
  if (space) return space->map_import(range, fd, p);
  auto made = std::make_unique<CudaSpace>(device_, layout().total_bytes(), where(), fmt::format("arena of rank {}", p));
  made->map_import(range, fd, p);
  space = std::move(made);
  set_peer(p, space->base());
}

// What a peer says is not believed: a range that lies elsewhere would let it put its memory over other memory.
void CudaArena::check_peer_range(Rank p, ArenaRange range) const {
  const int64_t total = layout().total_bytes();
  const bool is_inside = range.begin_bytes >= 0 && range.bytes > 0 && range.begin_bytes <= total &&
                         range.bytes <= total - range.begin_bytes;
  const bool is_whole_pages = range.begin_bytes % page_bytes() == 0 && range.bytes % page_bytes() == 0;
  const auto& space = peers_[static_cast<size_t>(p.value)];
  const bool is_new = !space || !space->overlaps(range);
  if (is_inside && is_whole_pages && is_new) return;
  throw Error(ErrorKind::mismatch,
              {.what = fmt::format("what rank {} sent is not a new piece of its arena", p),
               .where = where(),
               .values = fmt::format("range [{}, +{}){}", range.begin_bytes, range.bytes,
                                     is_new ? "" : ", of which some is mapped already"),
               .limit = fmt::format("must be whole pages of {} bytes within {} bytes", page_bytes(), total),
               .advice = "give all ranks the same TILEWIRE_ARENA_RESERVE_BYTES, TILEWIRE_USER_ARENA_RESERVE_BYTES and "
                         "TILEWIRE_MAX_CHUNKS_PER_SOURCE"});
}

void CudaArena::check_committed(ArenaRange range) const {
  const bool is_committed = std::any_of(ranges().begin(), ranges().end(), [range](ArenaRange r) {
    return range.bytes > 0 && range.begin_bytes >= r.begin_bytes && range.bytes <= r.bytes &&
           range.begin_bytes - r.begin_bytes <= r.bytes - range.bytes;
  });
  TILEWIRE_CHECK(is_committed, ErrorKind::invalid_argument, "range [{}, +{}) is no part of one committed range",
                 range.begin_bytes, range.bytes);
}

UniqueFd CudaArena::dma_buf(ArenaRange range) const {
  if (is_closed()) throw Error(ErrorKind::closed, {.what = "the arena is closed", .where = where()});
  check_committed(range);
  device_->check_usable(where());
  if (!device_->has_dma_buf() || !device_->has_rdma()) {
    throw Error(ErrorKind::unavailable,
                {.what = "network cards cannot register memory of this GPU by dma-buf",
                 .where = where(),
                 .values = fmt::format("CUDA device {}: dma-buf: {}, RDMA to mapped memory: {}", device_->ordinal(),
                                       device_->has_dma_buf() ? "yes" : "no", device_->has_rdma() ? "yes" : "no"),
                 .limit = "both are needed",
                 .advice = "use the open kernel modules of the NVIDIA driver on Linux 5.12 or newer, or load the "
                           "peer-memory module (nvidia-peermem)"});
  }
  int fd = -1;
  const CudaContext current(*device_, where());
  device_->check(
      device_->driver().address_range_handle(&fd, reinterpret_cast<CUdeviceptr>(base() + range.begin_bytes),
                                             static_cast<size_t>(range.bytes), CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
      {.name = "cuMemGetHandleForAddressRange",
       .purpose = "make a dma-buf of the arena",
       .where = where(),
       .values = fmt::format("range [{}, +{})", range.begin_bytes, range.bytes)});
  return UniqueFd(fd);
}

void CudaArena::unmap_peers() noexcept {
  for (auto& space : peers_) space.reset();
}
void CudaArena::close_exports() noexcept { descriptors_.clear(); }
void CudaArena::unmap_own() noexcept {
  own_.reset();
  control_page_.reset();
}

}  // namespace tilewire

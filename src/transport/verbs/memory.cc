#include "transport/verbs/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <span>

#include "base/log.h"
#include "base/unique_fd.h"

namespace tilewire::verbs {
namespace {

std::string memlock_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return fmt::format("{} bytes", limit.rlim_cur);
}

// What the process has locked so far: registered memory counts as pinned.
std::string locked_text() {
  std::ifstream file("/proc/self/status");
  std::string text;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmLck:", 0) != 0 && line.rfind("VmPin:", 0) != 0) continue;
    std::replace(line.begin(), line.end(), '\t', ' ');
    text += ", " + line;
  }
  return text;
}

[[noreturn]] void fail_registration(uint64_t bytes, int error, const std::string& where) {
  ErrorParts parts{.what = "memory could not be registered with the RDMA device",
                   .where = where,
                   .values = fmt::format("{} bytes: {}", bytes, errno_text(error))};
  if (error == ENOMEM || error == EAGAIN || error == EPERM) {
    parts.limit = fmt::format("locked memory (ulimit -l): {}{}", memlock_text(), locked_text());
    parts.advice =
        "raise it (ulimit -l unlimited, LimitMEMLOCK=infinity, docker run --ulimit memlock=-1), or lower "
        "TILEWIRE_ARENA_INITIAL_BYTES";
  }
  throw Error(ErrorKind::resource, std::move(parts));
}

unsigned access_of(const MemoryPiece& piece) {
  const unsigned access = abi::kAccessLocalWrite | abi::kAccessRemoteWrite;
  return piece.is_relaxed ? access | abi::kAccessRelaxedOrdering : access;
}

abi::Mr* register_address(const Verbs& verbs, abi::Pd* pd, const MemoryPiece& piece) {
  // Only the newer function drops the flag where the kernel does not know it.
  if (piece.is_relaxed && verbs.reg_mr_optional != nullptr) {
    return verbs.reg_mr_optional(pd, piece.begin, piece.bytes, reinterpret_cast<uint64_t>(piece.begin),
                                 access_of(piece));
  }
  return verbs.reg_mr(pd, piece.begin, piece.bytes,
                      static_cast<int>(access_of(piece) & ~unsigned{abi::kAccessRelaxedOrdering}));
}

// Null, and why: a dma-buf is of whole pages, the registration of the bytes asked for.
abi::Mr* register_dma_buf(const Verbs& verbs, abi::Pd* pd, const MemoryPiece& piece, std::string& why) {
  if (verbs.reg_dmabuf == nullptr) {
    why = "libibverbs has no function ibv_reg_dmabuf_mr (rdma-core 34)";
    return nullptr;
  }
  const ArenaRange pages = whole_pages(piece.offset, piece.bytes, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  try {
    const UniqueFd fd = piece.gpu->dma_buf(pages);
    abi::Mr* mr =
        verbs.reg_dmabuf(pd, piece.offset - static_cast<uint64_t>(pages.begin_bytes), piece.bytes,
                         reinterpret_cast<uint64_t>(piece.begin), fd.get(), static_cast<int>(access_of(piece)));
    if (mr == nullptr) why = fmt::format("ibv_reg_dmabuf_mr: {}", errno_text(errno));
    return mr;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unavailable) throw;
    why = error.what();
    return nullptr;
  }
}

Mr register_gpu_memory(const Verbs& verbs, abi::Pd* pd, const MemoryPiece& piece, const std::string& where) {
  std::string why_no_dma_buf;
  if (abi::Mr* mr = register_dma_buf(verbs, pd, piece, why_no_dma_buf)) return {verbs, mr};
  if (abi::Mr* mr = register_address(verbs, pd, piece)) {
    log_info("{}: GPU memory is registered by the peer-memory module; by dma-buf: {}", where, why_no_dma_buf);
    return {verbs, mr};
  }
  throw Error(
      ErrorKind::resource,
      {.what = "GPU memory could not be registered with the RDMA device",
       .where = where,
       .values = fmt::format("{} bytes; by dma-buf: {}; by the peer-memory module: {}", piece.bytes, why_no_dma_buf,
                             errno_text(errno)),
       .limit = "one of the two is needed",
       .advice = "use the open kernel modules of the NVIDIA driver on Linux 5.12 or newer with rdma-core 34, or "
                 "load nvidia-peermem"});
}

}  // namespace

ArenaRange whole_pages(uint64_t begin, uint64_t bytes, uint64_t page_bytes) {
  const uint64_t first = begin / page_bytes * page_bytes;
  const uint64_t end = (begin + bytes + page_bytes - 1) / page_bytes * page_bytes;
  return {.begin_bytes = static_cast<int64_t>(first), .bytes = static_cast<int64_t>(end - first)};
}

void write_keys(ByteWriter& writer, const std::vector<MemoryKey>& keys) {
  writer.u64(keys.size());
  for (const MemoryKey& key : keys) writer.u64(key.begin).u64(key.end).u32(key.key);
}

std::vector<MemoryKey> read_keys(ByteReader& reader) {
  std::vector<MemoryKey> keys;
  for (uint64_t left = reader.u64(); left > 0; --left) {
    MemoryKey key;
    key.begin = reader.u64();
    key.end = reader.u64();
    key.key = reader.u32();
    keys.push_back(key);
  }
  return keys;
}

Bytes pack_keys(const std::vector<MemoryKey>& keys) {
  ByteWriter writer;
  write_keys(writer, keys);
  return writer.take();
}

std::vector<MemoryKey> unpack_keys(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "RDMA keys");
  std::vector<MemoryKey> keys = read_keys(reader);
  reader.finish();
  return keys;
}

void KeyTable::add(const MemoryKey& key) {
  const std::span<const MemoryKey> now = keys_.now();
  std::vector<MemoryKey> next(now.begin(), now.end());
  next.insert(std::upper_bound(next.begin(), next.end(), key,
                               [](const MemoryKey& a, const MemoryKey& b) { return a.begin < b.begin; }),
              key);
  keys_.replace(std::move(next));
}

uint32_t KeyTable::remove(uint64_t begin) {
  const std::span<const MemoryKey> now = keys_.now();
  std::vector<MemoryKey> next(now.begin(), now.end());
  const auto found = std::find_if(next.begin(), next.end(), [=](const MemoryKey& key) { return key.begin == begin; });
  const uint32_t key = found->key;
  next.erase(found);
  keys_.replace(std::move(next));
  return key;
}

const MemoryKey* KeyTable::find(uint64_t offset) const {
  const std::span<const MemoryKey> keys = keys_.now();
  const auto behind = std::upper_bound(keys.begin(), keys.end(), offset,
                                       [](uint64_t at, const MemoryKey& key) { return at < key.begin; });
  if (behind == keys.begin()) return nullptr;
  const MemoryKey& key = *std::prev(behind);
  return offset < key.end ? &key : nullptr;
}

Mr register_memory(const Verbs& verbs, abi::Pd* pd, const MemoryPiece& piece, const std::string& where) {
  if (piece.gpu != nullptr) return register_gpu_memory(verbs, pd, piece, where);
  if (abi::Mr* mr = register_address(verbs, pd, piece)) return {verbs, mr};
  fail_registration(piece.bytes, errno, where);
}

ScratchMemory::ScratchMemory(const Verbs& verbs, abi::Pd* pd, uint64_t bytes, const std::string& where) {
  const UniqueFd fd(memfd_create("tilewire-rdma", MFD_CLOEXEC));
  if (!fd.is_open() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    throw Error(ErrorKind::resource, {.what = "no memory for the queues of the RDMA device",
                                      .where = where,
                                      .values = fmt::format("{} bytes: {}", bytes, errno_text(errno)),
                                      .advice = "raise the limits on open files and memory"});
  }
  memory_ = Mapping::share(fd.get(), static_cast<int64_t>(bytes), where, "queues");
  mr_ = register_memory(verbs, pd, {.begin = memory_.base(), .bytes = bytes}, where);
}

}  // namespace tilewire::verbs

#include "transport/verbs/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "base/unique_fd.h"

namespace tilewire::verbs {
namespace {

std::string memlock_text() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return fmt::format("{} bytes", limit.rlim_cur);
}

[[noreturn]] void fail_registration(uint64_t bytes, int error, const std::string& where) {
  ErrorParts parts{.what = "memory could not be registered with the RDMA device",
                   .where = where,
                   .values = fmt::format("{} bytes: {}", bytes, errno_text(error))};
  if (error == ENOMEM || error == EAGAIN || error == EPERM) {
    parts.limit = fmt::format("locked memory (ulimit -l): {}", memlock_text());
    parts.advice =
        "raise it (ulimit -l unlimited, LimitMEMLOCK=infinity, docker run --ulimit memlock=-1), or lower "
        "TILEWIRE_ARENA_INITIAL_BYTES";
  }
  throw Error(ErrorKind::resource, std::move(parts));
}

}  // namespace

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

const MemoryKey* KeyTable::find(uint64_t offset) const {
  const std::span<const MemoryKey> keys = keys_.now();
  const auto behind = std::upper_bound(keys.begin(), keys.end(), offset,
                                       [](uint64_t at, const MemoryKey& key) { return at < key.begin; });
  if (behind == keys.begin()) return nullptr;
  const MemoryKey& key = *std::prev(behind);
  return offset < key.end ? &key : nullptr;
}

Mr register_memory(const Verbs& verbs, abi::Pd* pd, std::byte* begin, uint64_t bytes, bool relaxed,
                   const std::string& where) {
  const unsigned access = abi::kAccessLocalWrite | abi::kAccessRemoteWrite;
  // Only the newer function drops the flag where the kernel does not know it.
  abi::Mr* mr = relaxed && verbs.reg_mr_optional != nullptr
                    ? verbs.reg_mr_optional(pd, begin, bytes, reinterpret_cast<uint64_t>(begin),
                                            access | abi::kAccessRelaxedOrdering)
                    : verbs.reg_mr(pd, begin, bytes, static_cast<int>(access));
  if (mr == nullptr) fail_registration(bytes, errno, where);
  return {verbs, mr};
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
  mr_ = register_memory(verbs, pd, memory_.base(), bytes, false, where);
}

}  // namespace tilewire::verbs

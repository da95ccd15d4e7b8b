#include "memory/mapping.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <tilewire/error.h>

#include <cerrno>
#include <cstring>

namespace tilewire {
namespace {

std::string address_space_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "the kernel's address space (RLIMIT_AS is unlimited)";
  }
  return fmt::format("RLIMIT_AS = {} bytes of address space for this process", limit.rlim_cur);
}

}  // namespace

Mapping Mapping::map(int fd, int64_t bytes, const std::string& where, const std::string& what) {
  const bool is_reservation = fd < 0;
  const int protection = is_reservation ? PROT_NONE : PROT_READ | PROT_WRITE;
  const int flags = MAP_NORESERVE | (is_reservation ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  void* at = mmap(nullptr, static_cast<size_t>(bytes), protection, flags, fd, 0);
  if (at == MAP_FAILED) {
    throw Error(ErrorKind::resource, {.what = fmt::format("cannot map the {}", what),
                                      .where = where,
                                      .values = fmt::format("{} bytes: {}", bytes, std::strerror(errno)),
                                      .limit = address_space_limit(),
                                      .advice = "raise ulimit -v, or lower TILEWIRE_ARENA_RESERVE_BYTES and "
                                                "TILEWIRE_USER_ARENA_RESERVE_BYTES on all ranks"});
  }
  // The range is mostly a hole: a core file would only get large with it.
  madvise(at, static_cast<size_t>(bytes), MADV_DONTDUMP);
  return Mapping(static_cast<std::byte*>(at), bytes);
}

Mapping Mapping::reserve(int64_t bytes, const std::string& where, const std::string& what) {
  return map(-1, bytes, where, what);
}

Mapping Mapping::share(int fd, int64_t bytes, const std::string& where, const std::string& what) {
  return map(fd, bytes, where, what);
}

void Mapping::reset() noexcept {
  if (base_ != nullptr) munmap(base_, static_cast<size_t>(bytes_));
  base_ = nullptr;
  bytes_ = 0;
}

}  // namespace tilewire

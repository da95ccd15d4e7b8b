#include "memory/memfd_arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/ids_format.h"
#include "memory/memory_room.h"

namespace tilewire {
namespace {

// One fallocate call holds off signals for as long as it takes: keep each short.
constexpr int64_t kCommitStepBytes = int64_t{64} << 20;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

std::string errno_text() { return std::strerror(errno); }

// Beyond this limit ftruncate and fallocate raise SIGXFSZ, whose default is to end the process.
void check_file_size_limit(int64_t bytes, const std::string& where) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      static_cast<uint64_t>(bytes) <= limit.rlim_cur) {
    return;
  }
  throw Error(ErrorKind::resource, {.what = "the memory file of the arena would be too long",
                                    .where = where,
                                    .values = fmt::format("{} bytes reserved", bytes),
                                    .limit = fmt::format("RLIMIT_FSIZE = {} bytes", limit.rlim_cur),
                                    .advice = "raise ulimit -f, or lower TILEWIRE_ARENA_RESERVE_BYTES and "
                                              "TILEWIRE_USER_ARENA_RESERVE_BYTES on all ranks"});
}

// A memory file of `bytes`, all hole, whose length nobody can change: a peer that cut it would make others fault.
UniqueFd make_memory_file(int64_t bytes, const std::string& where) {
  check_file_size_limit(bytes, where);
  UniqueFd fd(memfd_create("tilewire-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.is_open()) {
    throw Error(ErrorKind::resource, {.what = "cannot make the memory file of the arena",
                                      .where = where,
                                      .values = errno_text(),
                                      .advice = "raise ulimit -n when descriptors have run out"});
  }
  if (ftruncate(fd.get(), bytes) != 0 || fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0) {
    throw Error(ErrorKind::resource, {.what = "cannot set the length of the arena's memory file",
                                      .where = where,
                                      .values = fmt::format("{} bytes: {}", bytes, errno_text())});
  }
  return fd;
}

int64_t file_bytes(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? static_cast<int64_t>(info.st_size) : -1;
}

}  // namespace

MemfdArena::MemfdArena(const ArenaConfig& config) : Arena(config) {
  const int64_t bytes = layout().total_bytes();
  fd_ = make_memory_file(bytes, where());
  own_ = Mapping::share(fd_.get(), bytes, where(), "own arena");
  peers_.resize(static_cast<size_t>(layout().flags.ranks));
  add_export({{0, bytes}, fd_.get()});
  start(own_.base(), config);
}

MemfdArena::~MemfdArena() { finish(); }

void MemfdArena::commit(ArenaRange range) {
  check_memory_room(range.bytes, where(), memory_room());
  for (int64_t done = 0; done < range.bytes;) {
    const int64_t step = std::min(kCommitStepBytes, range.bytes - done);
    if (fallocate(fd_.get(), 0, range.begin_bytes + done, step) == 0) {
      done += step;
    } else if (errno != EINTR) {
      const std::string reason = errno_text();
      uncommit(range);
      throw Error(
          ErrorKind::resource,
          {.what = "not enough memory for the arena",
           .where = where(),
           .values = fmt::format("{} more bytes asked, failed after {}: {}", range.bytes, done, reason),
           .limit = memory_room().limit,
           .advice = "use smaller calls or fewer ranks on this machine, or lower TILEWIRE_ARENA_INITIAL_BYTES"});
    }
  }
}

void MemfdArena::uncommit(ArenaRange range) noexcept {
  // A failure costs memory until close() and nothing else: the range is not in the books.
  while (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, range.begin_bytes, range.bytes) != 0 &&
         errno == EINTR) {
  }
}

void MemfdArena::map_peer(Rank p, UniqueFd fd) { map_peer(p, {0, layout().total_bytes()}, std::move(fd)); }

void MemfdArena::map_peer_range(Rank p, ArenaRange range, UniqueFd fd) {
  const int64_t bytes = layout().total_bytes();
  const int64_t seen = file_bytes(fd.get());
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (range != ArenaRange{0, bytes} || seen != bytes || seals < 0 || (seals & kSizeSeals) != kSizeSeals) {
    throw Error(
        ErrorKind::mismatch,
        {.what = fmt::format("what rank {} sent is not its arena", p),
         .where = where(),
         .values =
             fmt::format("range [{}, +{}), a file of {} bytes, seals {}", range.begin_bytes, range.bytes, seen, seals),
         .limit = fmt::format("must be a sealed memory file of {} bytes, as here", bytes),
         .advice = "give all ranks the same TILEWIRE_ARENA_RESERVE_BYTES, TILEWIRE_USER_ARENA_RESERVE_BYTES and "
                   "TILEWIRE_MAX_CHUNKS_PER_SOURCE"});
  }
  Mapping& mapping = peers_[static_cast<size_t>(p.value)];
  mapping = Mapping::share(fd.get(), bytes, where(), fmt::format("arena of rank {}", p).c_str());
  set_peer(p, mapping.base());
}

void MemfdArena::unmap_peers() noexcept { peers_.clear(); }
void MemfdArena::close_exports() noexcept { fd_.reset(); }
void MemfdArena::unmap_own() noexcept { own_.reset(); }

}  // namespace tilewire

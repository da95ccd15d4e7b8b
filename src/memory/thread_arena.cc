#include "memory/thread_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <tilewire/error.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/check.h"
#include "memory/mapping.h"
#include "memory/memory_room.h"

namespace tilewire {

struct ThreadArenaGroup::Shared {
  std::vector<Node> nodes;
  ArenaConfig config;
  std::vector<Mapping> memory;  // by rank
  std::mutex mutex;             // guards what follows
  std::vector<bool> is_taken;   // by rank
};

namespace {

class ThreadArena final : public Arena {
 public:
  ThreadArena(std::shared_ptr<ThreadArenaGroup::Shared> shared, const ArenaConfig& config)
      : Arena(config), shared_(std::move(shared)) {
    start(shared_->memory[static_cast<size_t>(rank().value)].base(), config);
    for (int32_t p = 0; p < layout().flags.ranks; ++p) {
      if (shared_->nodes[static_cast<size_t>(p)] == shared_->nodes[static_cast<size_t>(rank().value)]) {
        set_peer(Rank{p}, shared_->memory[static_cast<size_t>(p)].base());
      }
    }
  }
  ~ThreadArena() override { finish(); }

 private:
  void commit(ArenaRange range) override {
    check_memory_room(range.bytes, where(), memory_room());
    if (mprotect(base() + range.begin_bytes, static_cast<size_t>(range.bytes), PROT_READ | PROT_WRITE) != 0) {
      throw Error(ErrorKind::resource,
                  {.what = "not enough memory for the arena",
                   .where = where(),
                   .values = fmt::format("{} more bytes asked: {}", range.bytes, std::strerror(errno)),
                   .limit = memory_room().limit,
                   .advice = "use smaller calls or fewer ranks, or lower TILEWIRE_ARENA_INITIAL_BYTES"});
    }
  }

  void uncommit(ArenaRange range) noexcept override {
    madvise(base() + range.begin_bytes, static_cast<size_t>(range.bytes), MADV_DONTNEED);
    mprotect(base() + range.begin_bytes, static_cast<size_t>(range.bytes), PROT_NONE);
  }

  void map_peer_range(Rank p, ArenaRange, UniqueFd) override {
    throw Error(ErrorKind::invalid_argument, {.what = "threads of one process share their arenas without descriptors",
                                              .where = where(),
                                              .values = fmt::format("descriptor of rank {}", p)});
  }

  void unmap_peers() noexcept override {}
  void close_exports() noexcept override {}
  void unmap_own() noexcept override { shared_.reset(); }

  std::shared_ptr<ThreadArenaGroup::Shared> shared_;
};

}  // namespace

ThreadArenaGroup::ThreadArenaGroup(std::vector<Node> nodes, const ArenaConfig& config)
    : shared_(std::make_shared<Shared>()) {
  TILEWIRE_CHECK_EQ(config.layout.flags.ranks, nodes.size(), ErrorKind::invalid_argument, "ranks of a thread group");
  shared_->config = config;
  shared_->is_taken.resize(nodes.size(), false);
  for (size_t r = 0; r < nodes.size(); ++r) {
    shared_->memory.push_back(
        Mapping::reserve(config.layout.total_bytes(), fmt::format("rank {}, arena", r), "own arena"));
  }
  shared_->nodes = std::move(nodes);
}

ThreadArenaGroup::~ThreadArenaGroup() = default;

int32_t ThreadArenaGroup::ranks() const { return static_cast<int32_t>(shared_->nodes.size()); }

std::unique_ptr<Arena> ThreadArenaGroup::arena(Rank r) {
  TILEWIRE_CHECK(r.value >= 0 && r.value < ranks(), ErrorKind::invalid_argument, "no rank {} among {}", r, ranks());
  {
    const std::lock_guard lock(shared_->mutex);
    const auto taken = shared_->is_taken[static_cast<size_t>(r.value)];
    TILEWIRE_CHECK(!taken, ErrorKind::invalid_argument, "rank {} has its arena already", r);
    shared_->is_taken[static_cast<size_t>(r.value)] = true;
  }
  ArenaConfig config = shared_->config;
  config.rank = r;
  return std::make_unique<ThreadArena>(shared_, config);
}

std::byte* ThreadArenaGroup::base(Rank r) const {
  TILEWIRE_CHECK(r.value >= 0 && r.value < ranks(), ErrorKind::invalid_argument, "no rank {} among {}", r, ranks());
  return shared_->memory[static_cast<size_t>(r.value)].base();
}

}  // namespace tilewire

// Arenas between processes, and what is left when they go.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tilewire/error.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "memory/arena_kinds.h"
#include "memory/export_link.h"
#include "memory/forked_child.h"
#include "memory/memfd_arena.h"
#include "memory/ping_pong.h"
#include "testing/given_time.h"
#include "testing/sanitized.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kMiB = int64_t{1} << 20;

ArenaConfig config_of(int32_t rank) {
  return {.rank = Rank{rank},
          .layout = {.flags = {.ranks = 2, .max_chunks = 4},
                     .half_stride_bytes = 64 * kMiB,
                     .user_stride_bytes = 64 * kMiB},
          .half_bytes = kMiB / 4,
          .user_bytes = kMiB / 4};
}

// Two arenas that know each other. Made before the fork, so that both processes share them.
struct Pair {
  MemfdArena a{config_of(0)};
  MemfdArena b{config_of(1)};

  Pair() {
    a.map_peer(Rank{1}, UniqueFd(fcntl(b.export_fd(), F_DUPFD_CLOEXEC, 0)));
    b.map_peer(Rank{0}, UniqueFd(fcntl(a.export_fd(), F_DUPFD_CLOEXEC, 0)));
  }
};

WaitOptions sleepy() {
  WaitOptions options;
  options.spin = 0ns;
  options.yields = 0;
  options.max_sleep = 30s;
  options.deadline = 30s;
  return options;
}

// Two processes, each with an arena that it made itself; rank 1 is the child.
class ArenaBetweenProcesses : public testing::TestWithParam<ArenaKind> {
 protected:
  void SetUp() override { GetParam().start(); }
  void TearDown() override { EXPECT_EQ(GetParam().leftovers(), ""); }

  std::unique_ptr<Arena> make(int32_t rank) const {
    ArenaConfig config = small_arena_config(2, page_);
    config.rank = Rank{rank};
    return GetParam().make(config);
  }
  // A rank that knows the other one.
  std::unique_ptr<Arena> join(int32_t rank, int socket) const {
    std::unique_ptr<Arena> arena = make(rank);
    send_exports(socket, *arena);
    map_exports(socket, *arena, Rank{1 - rank});
    return arena;
  }
  // The child's side: its CUDA is its own, and nothing of it is left when it has returned.
  int child(const std::function<int(Arena&, int)>& body) const {
    GetParam().start();
    const int code = [&] {
      const std::unique_ptr<Arena> arena = join(1, sockets_.child.get());
      return body(*arena, sockets_.child.get());
    }();
    return GetParam().leftovers().empty() ? code : 98;
  }

  const int64_t page_ = GetParam().page_bytes;
  SocketPair sockets_;
};

bool await_word(Arena& arena, uint32_t word, Epoch epoch) {
  WaitOptions options = sleepy();
  options.max_sleep = 1ms;  // the words' bell lies in the arena, that of control() may lie elsewhere
  return HostWaiter(arena.control(), options)
             .wait([&] { return has_reached(arena.base(), arena.layout(), word, epoch); },
                   [] { return std::string("the other process"); }) == WaitResult::ready;
}

TEST_P(ArenaBetweenProcesses, DataAndWordsCross) {
  ForkedChild other([&] {
    return child([&](Arena& mine, int) {
      const int64_t at = mine.layout().half_offset(1) + 4096;
      if (!await_word(mine, 0, 1) || mine.base()[at] != std::byte{42}) return 1;
      mine.peer(Rank{0})[at] = std::byte{43};
      publish_word(mine.peer(Rank{0}), mine.layout(), 1, 1);
      return 0;
    });
  });
  const auto mine = join(0, sockets_.parent.get());
  const int64_t at = mine->layout().half_offset(1) + 4096;
  mine->peer(Rank{1})[at] = std::byte{42};
  publish_word(mine->peer(Rank{1}), mine->layout(), 0, 1);
  EXPECT_TRUE(await_word(*mine, 1, 1));
  EXPECT_EQ(mine->base()[at], std::byte{43});
  EXPECT_EQ(other.wait(), 0);
}

TEST_P(ArenaBetweenProcesses, GrowthIsSeenWhereThePeerIsMappedAlready) {
  ForkedChild other([&] {
    return child([&](Arena& mine, int socket) {
      for (int64_t pages = 6; pages <= 10; pages += 2) {
        const size_t known = mine.exports().size();
        mine.grow(pages * page_, pages * page_);
        if (mine.exports().size() > known) send_exports(socket, mine, known);
        mine.base()[mine.layout().user_offset() + pages * page_ - 1] = static_cast<std::byte>(pages);
        publish_word(mine.peer(Rank{0}), mine.layout(), 1, static_cast<Epoch>(pages));
      }
      return await_word(mine, 0, 99) && mine.base()[mine.layout().half_offset(0) + 10 * page_ - 1] == std::byte{7} ? 0
                                                                                                                   : 1;
    });
  });
  const auto mine = join(0, sockets_.parent.get());
  const std::byte* const peer = mine->peer(Rank{1});
  for (int64_t pages = 6; pages <= 10; pages += 2) {
    if (!mine->is_host_accessible()) map_exports(sockets_.parent.get(), *mine, Rank{1});
    ASSERT_TRUE(await_word(*mine, 1, static_cast<Epoch>(pages)));
    EXPECT_EQ(peer[mine->layout().user_offset() + pages * page_ - 1], static_cast<std::byte>(pages));
  }
  EXPECT_EQ(mine->peer(Rank{1}), peer) << "growth has moved the peer's memory";
  mine->peer(Rank{1})[mine->layout().half_offset(0) + 10 * page_ - 1] = std::byte{7};
  publish_word(mine->peer(Rank{1}), mine->layout(), 0, 99);
  EXPECT_EQ(other.wait(), 0);
}

TEST_P(ArenaBetweenProcesses, AKilledOwnersMemoryStaysWithItsPeer) {
  ForkedChild other([&] {
    return child([&](Arena& mine, int) {
      publish_word(mine.peer(Rank{0}), mine.layout(), 1, 1);
      for (;;) pause();
      return 0;
    });
  });
  const auto mine = join(0, sockets_.parent.get());
  ASSERT_TRUE(await_word(*mine, 1, 1));
  other.kill_now();
  EXPECT_EQ(other.wait(), -SIGKILL);
  mine->peer(Rank{1})[mine->layout().half_offset(1) + 4 * page_ - 1] = std::byte{1};
}

TEST_P(ArenaBetweenProcesses, DescriptorsAreNotInheritedByProgramsThatARankStarts) {
  const auto arena = make(0);
  ASSERT_FALSE(arena->exports().empty());
  for (const ArenaExport& e : arena->exports()) EXPECT_NE(fcntl(e.fd, F_GETFD) & FD_CLOEXEC, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ArenaBetweenProcesses, testing::ValuesIn(process_arena_kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ArenaProcess, NoWakeUpIsLostBetweenProcesses) {
  constexpr Epoch kRounds = kIsSanitized ? 10'000 : 100'000;
  constexpr auto kPatience = 10s;
  Pair pair;
  ForkedChild child([&] {
    const PingPong side = {pair.b.layout(), pair.b.base(), pair.b.peer(Rank{0}), Rank{1}, sleepy(), 100};
    const PingPongResult result = play(side, 1, kRounds, kPatience);
    return result.last == WaitResult::ready && result.longest_wait < kPatience ? 0 : 1;
  });
  const PingPong side = {pair.a.layout(), pair.a.base(), pair.a.peer(Rank{1}), Rank{0}, sleepy(), 0};
  const PingPongResult result = play(side, 1, kRounds, kPatience);
  EXPECT_EQ(result.last, WaitResult::ready);
  EXPECT_LT(result.longest_wait, kPatience);
  EXPECT_EQ(child.wait(), 0);
}

TEST(ArenaProcess, AbortReachesASleeperInAnotherProcess) {
  Pair pair;
  ForkedChild child([&] {
    HostWaiter waiter(pair.b.base(), sleepy());
    const auto result = waiter.wait([] { return false; }, [] { return std::string("an abort"); });
    return result == WaitResult::aborted && waiter.last_waited() < 10s ? 0 : 1;
  });
  while (std::atomic_ref(*arena_bell(pair.b.base()).sleepers).load() == 0) std::this_thread::sleep_for(1ms);
  raise_abort(pair.a.peer(Rank{1}));
  EXPECT_EQ(child.wait(), 0);
}

TEST(ArenaProcess, AKilledOwnerLeavesNoFileAndItsPeerKeepsTheMemory) {
  Pair pair;
  struct stat info {};
  ASSERT_EQ(fstat(pair.b.export_fd(), &info), 0);
  EXPECT_EQ(info.st_nlink, 0u) << "the memory has a name in some file system";
  ForkedChild child([&] {
    pair.b.grow(8 * kMiB, 8 * kMiB);
    publish_word(pair.b.peer(Rank{0}), pair.b.layout(), 1, 1);
    for (;;) pause();
    return 0;
  });
  HostWaiter waiter(pair.a.base(), sleepy());
  ASSERT_EQ(waiter.wait([&] { return has_reached(pair.a.base(), pair.a.layout(), 1, 1); },
                        [] { return std::string("the child"); }),
            WaitResult::ready);
  child.kill_now();
  EXPECT_EQ(child.wait(), -SIGKILL);
  pair.a.peer(Rank{1})[pair.a.layout().half_offset(1) + 8 * kMiB - 1] = std::byte{1};
}

int64_t count_lines(const char* file, const std::string& with) {
  std::ifstream in(file);
  int64_t lines = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.find(with) != std::string::npos) ++lines;
  }
  return lines;
}

int64_t open_descriptors() {
  const std::filesystem::directory_iterator folder("/proc/self/fd");
  return std::distance(begin(folder), end(folder));
}

// Shared memory in use on the machine, by all processes: the only count that sees a memory file nobody maps.
int64_t machine_shared_kib() {
  std::ifstream in("/proc/meminfo");
  for (std::string word; in >> word;) {
    if (word == "Shmem:") {
      int64_t kib = 0;
      in >> kib;
      return kib;
    }
  }
  return -1;
}

TEST(ArenaProcess, FiveHundredLivesLeaveDescriptorsMappingsAndMemoryFlat) {
  const auto live_once = [] {
    Pair pair;
    std::byte* p = pair.a.allocate_user(1000);
    pair.a.grow(kMiB, kMiB);
    publish_word(pair.a.peer(Rank{1}), pair.a.layout(), 0, 1);
    pair.a.free_user(p);
    pair.a.close();
  };
  live_once();
  const int64_t descriptors = open_descriptors();
  const int64_t mappings = count_lines("/proc/self/maps", "memfd:tilewire");
  const int64_t all_mappings = count_lines("/proc/self/maps", "");
  const int64_t shared_kib = machine_shared_kib();
  for (int life = 0; life < 500; ++life) live_once();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(count_lines("/proc/self/maps", "memfd:tilewire"), mappings);
  EXPECT_EQ(mappings, 0);
  EXPECT_LE(count_lines("/proc/self/maps", ""), all_mappings + 8) << "give or take the allocator's own";
  // 500 lives that leaked would hold 1.8 GB for good; other processes of this machine take and give some meanwhile.
  EXPECT_TRUE(comes_true([&] { return machine_shared_kib() <= shared_kib + (int64_t{1} << 20); }));
}

// Runs `body` under a limit in a child, since limits do not come back; 0 when it raised Error(resource) with `part`.
int under_limit(int resource, rlim_t bytes, const std::string& part, const std::function<void()>& body) {
  ForkedChild child([&] {
    const rlimit limit = {bytes, bytes};
    if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return 2;
    try {
      body();
    } catch (const Error& e) {
      const bool is_named = std::string(e.what()).find(part) != std::string::npos;
      return e.kind() == ErrorKind::resource && is_named ? 0 : 3;
    }
    return 1;
  });
  return child.wait();
}

TEST(ArenaProcess, ProcessLimitsAreNamedErrors) {
  if (kIsSanitized) GTEST_SKIP() << "a sanitizer needs more address space than the limit";
  ArenaConfig config = config_of(0);
  config.layout.half_stride_bytes = int64_t{64} << 30;
  EXPECT_EQ(under_limit(RLIMIT_AS, rlim_t{8} << 30, "RLIMIT_AS = 8589934592", [&] { MemfdArena arena(config); }), 0);
  EXPECT_EQ(under_limit(RLIMIT_FSIZE, rlim_t{1} << 30, "RLIMIT_FSIZE", [&] { MemfdArena arena(config); }), 0);
  EXPECT_EQ(under_limit(RLIMIT_NOFILE, 0, "ulimit -n", [&] { MemfdArena arena(config); }), 0);
}

#if defined(TILEWIRE_HAS_CUDA)
TEST(ArenaProcess, GpuArenasInAForkedChildAreForgottenWithoutCuda) {
  FakeGpu::start();
  ArenaConfig config = small_arena_config(2, int64_t{2} << 20);
  auto arena = make_fake_cuda_arena(config);
  std::byte* const held = arena->allocate_user(100);
  ForkedChild child([&] {
    const auto is_refused = [](const std::function<void()>& f) {
      try {
        f();
      } catch (const Error& e) {
        return e.kind() == ErrorKind::closed && std::string(e.what()).find("fork") != std::string::npos;
      }
      return false;
    };
    if (!is_refused([&] { arena->grow(config.half_bytes * 2, 0); })) return 1;
    if (!is_refused([&] { arena->map_peer(Rank{1}, arena->ranges()[0], UniqueFd(dup(arena->exports()[0].fd))); }))
      return 2;
    if (!is_refused([&] { static_cast<void>(arena->dma_buf(arena->ranges()[0])); })) return 3;
    arena->close();
    arena->free_user(held);
    arena.reset();
    return FakeGpu::broken_rules() == 0 ? 0 : 4;
  });
  EXPECT_EQ(child.wait(), 0);
  arena->free_user(held);
  arena.reset();
  EXPECT_EQ(fake_gpu_leftovers(), "");
}

TEST(ArenaProcess, LivesOfGpuArenasLeaveDescriptorsAndMemoryFlat) {
  const auto live_once = [] {
    ArenaConfig config = small_arena_config(2, int64_t{2} << 20);
    config.half_bytes = config.user_bytes = 0;
    auto a = make_fake_cuda_arena(config);
    config.rank = Rank{1};
    auto b = make_fake_cuda_arena(config, 1);
    for (const ArenaExport& e : b->exports()) a->map_peer(Rank{1}, e.range, UniqueFd(fcntl(e.fd, F_DUPFD_CLOEXEC, 0)));
    a->grow(0, 1);
    a->allocate_user(10);  // still held when the arena goes
  };
  FakeGpu::start();
  live_once();
  const int64_t descriptors = open_descriptors();
  const int64_t mappings = count_lines("/proc/self/maps", "");
  for (int life = 0; life < 20; ++life) live_once();
  EXPECT_EQ(fake_gpu_leftovers(), "");
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LE(count_lines("/proc/self/maps", ""), mappings + 8);
}
#endif

}  // namespace
}  // namespace tilewire

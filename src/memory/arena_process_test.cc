// The memfd arena between processes, and what is left when they go.
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

#include "memory/forked_child.h"
#include "memory/memfd_arena.h"
#include "memory/ping_pong.h"

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

TEST(ArenaProcess, DataAndWordsCrossBetweenProcesses) {
  Pair pair;
  const int64_t at = pair.a.layout().half_offset(1) + 4096;
  ForkedChild child([&] {
    HostWaiter waiter(pair.b.base(), sleepy());
    const auto result = waiter.wait([&] { return has_reached(pair.b.base(), pair.b.layout(), 0, 1); },
                                    [] { return std::string("the parent"); });
    if (result != WaitResult::ready || pair.b.base()[at] != std::byte{42}) return 1;
    pair.b.peer(Rank{0})[at] = std::byte{43};
    publish_word(pair.b.peer(Rank{0}), pair.b.layout(), 1, 1);
    return 0;
  });
  pair.a.peer(Rank{1})[at] = std::byte{42};
  publish_word(pair.a.peer(Rank{1}), pair.a.layout(), 0, 1);
  HostWaiter waiter(pair.a.base(), sleepy());
  EXPECT_EQ(waiter.wait([&] { return has_reached(pair.a.base(), pair.a.layout(), 1, 1); },
                        [] { return std::string("the child"); }),
            WaitResult::ready);
  EXPECT_EQ(pair.a.base()[at], std::byte{43});
  EXPECT_EQ(child.wait(), 0);
}

TEST(ArenaProcess, NoWakeUpIsLostBetweenProcesses) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr Epoch kRounds = 10000;
#else
  constexpr Epoch kRounds = 100000;
#endif
  constexpr auto kPatience = 10s;
  Pair pair;
  ForkedChild child([&] {
    const PingPong side = {pair.b.layout(), pair.b.base(), pair.b.peer(Rank{0}), Rank{1}, sleepy(), 100};
    const PingPongResult result = play(side, kRounds, kPatience);
    return result.last == WaitResult::ready && result.longest_wait < kPatience ? 0 : 1;
  });
  const PingPong side = {pair.a.layout(), pair.a.base(), pair.a.peer(Rank{1}), Rank{0}, sleepy(), 0};
  const PingPongResult result = play(side, kRounds, kPatience);
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
  const int64_t mappings = count_lines("/proc/self/maps", "tilewire");
  const int64_t all_mappings = count_lines("/proc/self/maps", "");
  const int64_t shared_kib = machine_shared_kib();
  for (int life = 0; life < 500; ++life) live_once();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_EQ(count_lines("/proc/self/maps", "tilewire"), mappings);
  EXPECT_EQ(mappings, 0);
  EXPECT_LE(count_lines("/proc/self/maps", ""), all_mappings + 8) << "give or take the allocator's own";
  // 500 lives that leaked would hold 1.8 GB; other processes of this machine may take and give some meanwhile.
  EXPECT_LE(machine_shared_kib(), shared_kib + (int64_t{1} << 20));
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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs more address space than the limit";
#endif
  ArenaConfig config = config_of(0);
  config.layout.half_stride_bytes = int64_t{64} << 30;
  EXPECT_EQ(under_limit(RLIMIT_AS, rlim_t{8} << 30, "RLIMIT_AS = 8589934592", [&] { MemfdArena arena(config); }), 0);
  EXPECT_EQ(under_limit(RLIMIT_FSIZE, rlim_t{1} << 30, "RLIMIT_FSIZE", [&] { MemfdArena arena(config); }), 0);
  EXPECT_EQ(under_limit(RLIMIT_NOFILE, 0, "ulimit -n", [&] { MemfdArena arena(config); }), 0);
}

TEST(ArenaProcess, DescriptorsAreNotInheritedByProgramsThatARankStarts) {
  MemfdArena arena(config_of(0));
  EXPECT_NE(fcntl(arena.export_fd(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace tilewire

// What every kind of arena must do, run over each; and what only host memory does.
#include "memory/arena.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <vector>

#include "base/bytes.h"
#include "memory/arena_kinds.h"
#include "memory/memfd_arena.h"
#include "memory/memory_room.h"
#include "memory/thread_arena.h"
#include "memory/words.h"

namespace tilewire {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Of host memory.
ArenaConfig small_config(int32_t ranks) {
  ArenaConfig config;
  config.layout = {
      .flags = {.ranks = ranks, .max_chunks = 4}, .half_stride_bytes = 2 * kMiB, .user_stride_bytes = kMiB};
  config.half_bytes = 64 << 10;
  config.user_bytes = 16 << 10;
  return config;
}

ErrorKind kind_of(const std::function<void()>& f, const std::string& part = "") {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    return e.kind();
  }
  ADD_FAILURE() << "no error";
  return ErrorKind::internal;
}

class ArenaKinds : public testing::TestWithParam<ArenaKind> {
 protected:
  void SetUp() override { GetParam().start(); }
  void TearDown() override { EXPECT_EQ(GetParam().leftovers(), ""); }
  std::unique_ptr<Arena> make(const ArenaConfig& config) const { return GetParam().make(config); }
  ArenaConfig small(int32_t ranks) const { return small_arena_config(ranks, page_); }

  const int64_t page_ = GetParam().page_bytes;
};

TEST_P(ArenaKinds, FlagAreaAndHalvesAreZeroAtCreation) {
  const auto arena = make(small(3));
  const ArenaLayout& layout = arena->layout();
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  EXPECT_TRUE(std::all_of(arena->base(), arena->base() + layout.flag_bytes(), is_zero));
  for (Epoch e = 0; e < 2; ++e) {
    const std::byte* half = arena->base() + layout.half_offset(e);
    EXPECT_TRUE(std::all_of(half, half + arena->half_bytes(), is_zero));
  }
}

TEST_P(ArenaKinds, RecordsHaveRoomWhenNoCallAsksForMemory) {
  ArenaConfig config = small(2);
  config.half_bytes = 0;
  config.user_bytes = 0;
  const auto arena = make(config);
  EXPECT_EQ(arena->half_bytes(), page_);
  EXPECT_EQ(arena->user_bytes(), 0);
}

TEST_P(ArenaKinds, GrowthKeepsAddressesAndContents) {
  const auto arena = make(small(2));
  std::byte* const base = arena->base();
  std::byte* const half1 = base + arena->layout().half_offset(1);
  std::memset(half1, 0x5A, static_cast<size_t>(arena->half_bytes()));
  arena->grow(16 * page_ + 1, 8 * page_);
  EXPECT_EQ(arena->base(), base);
  EXPECT_EQ(arena->half_bytes(), 17 * page_);
  EXPECT_EQ(arena->user_bytes(), 8 * page_);
  EXPECT_EQ(half1[0], std::byte{0x5A});
  EXPECT_EQ(half1[4 * page_ - 1], std::byte{0x5A});
  for (Epoch e = 0; e < 2; ++e) base[arena->layout().half_offset(e) + arena->half_bytes() - 1] = std::byte{1};
}

TEST_P(ArenaKinds, GrowthAppendsToTheListOfTheNic) {
  const auto arena = make(small(2));
  const std::vector<ArenaRange> before(arena->ranges().begin(), arena->ranges().end());
  ASSERT_EQ(before.size(), 4u);
  EXPECT_EQ(before[0], (ArenaRange{0, round_up(arena->layout().flag_bytes(), page_)}));
  arena->grow(8 * page_, 0);
  ASSERT_EQ(arena->ranges().size(), 6u);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), arena->ranges().begin()));
  EXPECT_EQ(arena->ranges()[4], (ArenaRange{arena->layout().half_offset(0) + 4 * page_, 4 * page_}));
  EXPECT_EQ(arena->ranges()[5], (ArenaRange{arena->layout().half_offset(1) + 4 * page_, 4 * page_}));
  arena->grow(1, 1);
  EXPECT_EQ(arena->ranges().size(), 6u) << "asking for less changes nothing";
}

TEST_P(ArenaKinds, GrowthPastTheReservationNamesBytesLimitAndOption) {
  const auto arena = make(small(2));
  EXPECT_EQ(kind_of([&] { arena->grow(32 * page_ + 1, 0); }, "TILEWIRE_ARENA_RESERVE_BYTES"), ErrorKind::resource);
  EXPECT_EQ(kind_of([&] { arena->grow(0, 16 * page_ + 1); }, std::to_string(16 * page_ + 1) + " bytes asked"),
            ErrorKind::resource);
  EXPECT_EQ(kind_of([&] { arena->grow(0, 16 * page_ + 1); }, "TILEWIRE_USER_ARENA_RESERVE_BYTES"), ErrorKind::resource);
  EXPECT_EQ(kind_of([&] { arena->grow(-1, 0); }), ErrorKind::invalid_argument);
  EXPECT_EQ(arena->ranges().size(), 4u);
  EXPECT_EQ(arena->half_bytes(), 4 * page_);
}

TEST_P(ArenaKinds, MoreThanTheMachineHasIsAnErrorAndChangesNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race detector leaves too little address space";
#endif
  ArenaConfig config = small(2);
  config.layout.user_stride_bytes = CommandLimits::kAreaBytes;
  if (make(small(2))->is_host_accessible() && memory_room().bytes >= config.layout.user_stride_bytes)
    GTEST_SKIP() << "this machine has enough";
  const auto arena = make(config);
  // The halves fit, the user area does not: what was done for the halves is taken back.
  EXPECT_EQ(kind_of([&] { arena->grow(32 * page_, config.layout.user_stride_bytes); }, "can be had"),
            ErrorKind::resource);
  EXPECT_EQ(arena->half_bytes(), 4 * page_);
  EXPECT_EQ(arena->ranges().size(), 4u);
  arena->grow(32 * page_, 8 * page_);
  EXPECT_EQ(arena->ranges().size(), 7u);
  EXPECT_EQ(arena->base()[arena->layout().half_offset(1) + 32 * page_ - 1], std::byte{0});
}

TEST_P(ArenaKinds, RefusesALayoutOrRankThatMakesNoSense) {
  const auto with = [this](auto change) {
    ArenaConfig config = small(2);
    change(config);
    return config;
  };
  EXPECT_EQ(kind_of([&] { make(with([](auto& c) { c.rank = Rank{2}; })); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { make(with([](auto& c) { c.rank = Rank{-1}; })); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { make(with([](auto& c) { c.layout.half_stride_bytes += 1; })); }),
            ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { make(with([](auto& c) { c.layout.half_stride_bytes = 0; })); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { make(with([](auto& c) { c.layout.flags.max_chunks = 1 << 20; })); }), ErrorKind::resource);
}

TEST_P(ArenaKinds, UserMemoryIsAlignedAndInsideTheCommittedArea) {
  const auto arena = make(small(2));
  for (const int64_t alignment : {1, 16, 256, 4096}) {
    std::byte* p = arena->allocate_user(100, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment), 0u);
    EXPECT_EQ(arena->user_area_offset(p), p - arena->base());
    p[99] = std::byte{1};
    arena->free_user(p);
  }
  EXPECT_EQ(arena->user_area_offset(arena->base()), -1);
  EXPECT_EQ(arena->user_area_offset(arena->base() + arena->layout().user_offset() + arena->user_bytes()), -1);
}

TEST_P(ArenaKinds, UserMemoryThatDoesNotFitSaysHowFarToGrow) {
  const auto arena = make(small(2));
  std::byte* held = arena->allocate_user(5 * page_ / 2);
  EXPECT_EQ(kind_of([&] { arena->allocate_user(5 * page_); }, std::to_string(5 * page_) + " bytes asked"),
            ErrorKind::resource);
  const int64_t enough = arena->user_bytes_for(5 * page_);
  EXPECT_LE(enough, 5 * page_ / 2 + 5 * page_ + page_ + 256);
  arena->grow(0, enough);
  arena->free_user(arena->allocate_user(5 * page_));
  arena->free_user(held);
  EXPECT_EQ(kind_of([&] { arena->user_bytes_for(std::numeric_limits<int64_t>::max()); }), ErrorKind::resource);
}

TEST_P(ArenaKinds, RefusesBadUserRequests) {
  const auto arena = make(small(2));
  EXPECT_EQ(kind_of([&] { arena->allocate_user(-1); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { arena->allocate_user(1, 3); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { arena->allocate_user(1, 8192); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { arena->allocate_user(std::numeric_limits<int64_t>::max()); }), ErrorKind::resource);
  std::byte* p = arena->allocate_user(1);
  EXPECT_EQ(kind_of([&] { arena->free_user(p + 1); }), ErrorKind::invalid_argument);
  arena->free_user(p);
  EXPECT_EQ(kind_of([&] { arena->free_user(p); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { arena->free_user(nullptr); }), ErrorKind::invalid_argument);
}

TEST_P(ArenaKinds, ClosedArenaRefusesWorkAndClosesTwice) {
  const auto arena = make(small(2));
  arena->close();
  arena->close();
  EXPECT_TRUE(arena->is_closed());
  EXPECT_TRUE(arena->exports().empty());
  EXPECT_EQ(arena->base(), nullptr);
  EXPECT_EQ(kind_of([&] { arena->grow(8 * page_, 0); }), ErrorKind::closed);
  EXPECT_EQ(kind_of([&] { arena->allocate_user(1); }), ErrorKind::closed);
  EXPECT_EQ(kind_of([&] { arena->map_peer(Rank{1}, {}, UniqueFd()); }), ErrorKind::closed);
}

TEST_P(ArenaKinds, UserMemoryOutlivesCloseUntilItIsFreed) {
  const auto arena = make(small(2));
  std::byte* a = arena->allocate_user(1000);
  std::byte* b = arena->allocate_user(1000);
  std::memset(a, 0x11, 1000);
  std::memset(b, 0x22, 1000);
  arena->close();
  arena->free_user(a);
  EXPECT_EQ(b[999], std::byte{0x22});
  arena->free_user(b);
  EXPECT_EQ(arena->base(), nullptr) << "unmapped with the last of them";
  EXPECT_EQ(kind_of([&] { arena->free_user(b); }), ErrorKind::invalid_argument);
}

TEST_P(ArenaKinds, PeerOfTheOwnRankIsTheOwnArenaAndStrangersAreRefused) {
  const auto arena = make(small(2));
  EXPECT_EQ(arena->peer(Rank{0}), arena->base());
  EXPECT_EQ(kind_of([&] { arena->peer(Rank{2}); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { arena->peer(Rank{-1}); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { arena->map_peer(Rank{0}, {}, UniqueFd()); }), ErrorKind::invalid_argument);
}

TEST_P(ArenaKinds, HostUsesAControlPageThatItMayTouch) {
  const auto arena = make(small(2));
  EXPECT_EQ(arena->control() == arena->base(), arena->is_host_accessible());
  const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
  EXPECT_TRUE(std::all_of(arena->control(), arena->control() + ControlPage::kBytes, is_zero));
  publish_sent(arena->control(), 7);
  raise_abort(arena->control());
  EXPECT_EQ(load_sent(arena->control()), 7u);
  EXPECT_TRUE(is_aborted(arena->control()));
  arena->close();
  EXPECT_EQ(arena->control(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, ArenaKinds, testing::ValuesIn(arena_kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

ArenaConfig with_rank(ArenaConfig config, int32_t rank) {
  config.rank = Rank{rank};
  return config;
}

TEST(MemfdArena, PeerSeesWritesAndLaterGrowth) {
  MemfdArena a(with_rank(small_config(2), 0));
  MemfdArena b(with_rank(small_config(2), 1));
  EXPECT_EQ(a.peer(Rank{1}), nullptr) << "nothing is mapped before map_peer";
  a.map_peer(Rank{1}, UniqueFd(dup(b.export_fd())));
  ASSERT_NE(a.peer(Rank{1}), nullptr);
  publish_word(a.peer(Rank{1}), a.layout(), 3, 17);
  EXPECT_EQ(load_word(b.base(), b.layout(), 3), 17u);
  b.grow(kMiB, 0);
  const int64_t last = b.layout().half_offset(1) + kMiB - 1;
  a.peer(Rank{1})[last] = std::byte{9};
  EXPECT_EQ(b.base()[last], std::byte{9});
  a.close();
  EXPECT_EQ(b.base()[last], std::byte{9});
}

TEST(MemfdArena, PeerMappingOutlivesItsOwner) {
  MemfdArena a(with_rank(small_config(2), 0));
  {
    MemfdArena b(with_rank(small_config(2), 1));
    a.map_peer(Rank{1}, UniqueFd(dup(b.export_fd())));
    publish_word(b.base(), b.layout(), 0, 5);
  }
  EXPECT_EQ(load_word(a.peer(Rank{1}), a.layout(), 0), 5u);
}

TEST(MemfdArena, RefusesWhatIsNotAnArenaOfThisLayout) {
  MemfdArena a(with_rank(small_config(2), 0));
  ArenaConfig other = with_rank(small_config(2), 1);
  other.layout.user_stride_bytes = 2 * kMiB;
  MemfdArena b(other);
  EXPECT_EQ(kind_of([&] { a.map_peer(Rank{1}, UniqueFd(dup(b.export_fd()))); }, "RESERVE_BYTES"), ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] { a.map_peer(Rank{1}, UniqueFd(dup(0))); }), ErrorKind::mismatch);
  EXPECT_EQ(kind_of([&] { a.map_peer(Rank{1}, UniqueFd()); }), ErrorKind::mismatch);
  EXPECT_EQ(a.peer(Rank{1}), nullptr);
}

int64_t file_blocks(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? static_cast<int64_t>(info.st_blocks) : -1;
}

TEST(MemfdArena, FailedGrowthGivesBackWhatItHadTaken) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the race detector leaves too little address space";
#endif
  ArenaConfig config = small_config(2);
  config.layout.user_stride_bytes = CommandLimits::kAreaBytes;
  if (memory_room().bytes >= config.layout.user_stride_bytes) GTEST_SKIP() << "this machine has enough";
  MemfdArena arena(config);
  const int64_t blocks = file_blocks(arena.export_fd());
  EXPECT_EQ(blocks * 512, arena.layout().flag_bytes() + 2 * arena.half_bytes() + arena.user_bytes());
  EXPECT_EQ(kind_of([&] { arena.grow(2 * kMiB, config.layout.user_stride_bytes); }), ErrorKind::resource);
  EXPECT_EQ(file_blocks(arena.export_fd()), blocks);
}

TEST(MemfdArena, PeerCannotCutTheMemoryUnderItsOwner) {
  MemfdArena a(small_config(1));
  EXPECT_NE(ftruncate(a.export_fd(), 4096), 0);
  EXPECT_NE(ftruncate(a.export_fd(), 2 * a.layout().total_bytes()), 0);
}

TEST(ThreadArena, PeersOfOtherNodesAreNotMapped) {
  ThreadArenaGroup group({Node{0}, Node{0}, Node{1}}, small_config(3));
  const auto a = group.arena(Rank{0});
  const auto b = group.arena(Rank{1});
  const auto c = group.arena(Rank{2});
  EXPECT_EQ(a->peer(Rank{1}), b->base());
  EXPECT_EQ(b->peer(Rank{0}), a->base());
  EXPECT_EQ(a->peer(Rank{2}), nullptr);
  EXPECT_EQ(c->peer(Rank{0}), nullptr);
  EXPECT_EQ(group.base(Rank{2}), c->base());
}

TEST(ThreadArena, MemoryOfARankThatClosedStaysForTheOthers) {
  auto group = std::make_unique<ThreadArenaGroup>(std::vector<Node>(2, Node{0}), small_config(2));
  const auto a = group->arena(Rank{0});
  auto b = group->arena(Rank{1});
  group.reset();
  b.reset();
  publish_word(a->peer(Rank{1}), a->layout(), 0, 1);
  EXPECT_EQ(load_word(a->peer(Rank{1}), a->layout(), 0), 1u);
}

TEST(ThreadArena, EachRankIsTakenOnce) {
  ThreadArenaGroup group({Node{0}}, small_config(1));
  const auto a = group.arena(Rank{0});
  EXPECT_EQ(kind_of([&] { group.arena(Rank{0}); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { group.arena(Rank{1}); }), ErrorKind::invalid_argument);
  EXPECT_EQ(kind_of([&] { ThreadArenaGroup({Node{0}}, small_config(2)); }), ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace tilewire

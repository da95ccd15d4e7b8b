#include "memory/wait.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "memory/ping_pong.h"
#include "memory/thread_arena.h"
#include "testing/given_time.h"
#include "testing/sanitized.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

constexpr Epoch kRounds = kIsSanitized ? 10'000 : 100'000;

const ArenaConfig kConfig = {
    .rank = Rank{0},
    .layout = {.flags = {.ranks = 2, .max_chunks = 4}, .half_stride_bytes = 4096, .user_stride_bytes = 0},
    .half_bytes = 0,
    .user_bytes = 0};

// A wait that goes to sleep at once and would sleep long past the test's patience if nobody woke it.
WaitOptions sleepy() {
  WaitOptions options;
  options.spin = 0ns;
  options.yields = 0;
  options.max_sleep = 30s;
  options.deadline = 30s;
  return options;
}
constexpr auto kPatience = 10s;

std::string nothing() { return "nothing"; }

class Wait : public testing::Test {
 protected:
  ThreadArenaGroup group_{std::vector<Node>(2, Node{0}), kConfig};
  std::unique_ptr<Arena> arena_ = group_.arena(Rank{0});
  std::unique_ptr<Arena> other_ = group_.arena(Rank{1});
  const ArenaLayout& layout_ = arena_->layout();
  std::byte* base_ = arena_->base();
};

TEST_F(Wait, WhatIsReadyAtOnceCostsNoTime) {
  HostWaiter waiter(base_, sleepy());
  EXPECT_EQ(waiter.wait([] { return true; }, nothing), WaitResult::ready);
  EXPECT_EQ(waiter.last_waited(), 0ns);
  EXPECT_EQ(waiter.sleeps(), 0);
}

TEST_F(Wait, DeadlinePassesWhetherItComesInTheSpinOrInTheSleep) {
  for (const auto spin : {0ns, std::chrono::nanoseconds(10s)}) {
    WaitOptions options = sleepy();
    options.spin = spin;
    options.deadline = 30ms;
    HostWaiter waiter(base_, options);
    EXPECT_EQ(waiter.wait([] { return false; }, nothing), WaitResult::deadline);
    EXPECT_GE(waiter.last_waited(), 30ms);
    EXPECT_LT(waiter.last_waited(), 5s);
  }
}

TEST_F(Wait, AnEndlessDeadlineDoesNotWrap) {
  WaitOptions options = sleepy();
  options.max_sleep = 1ms;
  options.deadline = std::chrono::nanoseconds::max();
  HostWaiter waiter(base_, options);
  int looks = 0;
  EXPECT_EQ(waiter.wait([&] { return ++looks > 5; }, nothing), WaitResult::ready);
}

TEST_F(Wait, AbortIsSeenEvenWhereTheConditionHolds) {
  raise_abort(base_);
  HostWaiter waiter(base_, sleepy());
  EXPECT_EQ(waiter.wait([] { return true; }, nothing), WaitResult::aborted);
}

TEST_F(Wait, AbortWakesASleeperOfAnyRank) {
  HostWaiter waiter(base_, sleepy());
  std::thread killer([&] {
    std::this_thread::sleep_for(20ms);
    raise_abort(other_->peer(Rank{0}));
  });
  EXPECT_EQ(waiter.wait([] { return false; }, nothing), WaitResult::aborted);
  EXPECT_LT(waiter.last_waited(), kPatience);
  killer.join();
}

TEST_F(Wait, AWordThatRingsNoBellIsSeenAfterOneBoundedSleep) {
  WaitOptions options = sleepy();
  options.max_sleep = 1ms;
  HostWaiter waiter(base_, options);
  std::atomic<bool> flag{false};
  std::thread nic([&] {
    std::this_thread::sleep_for(20ms);
    flag.store(true);
  });
  EXPECT_EQ(waiter.wait([&] { return flag.load(); }, nothing), WaitResult::ready);
  EXPECT_LT(waiter.last_waited(), kPatience);
  nic.join();
}

TEST_F(Wait, OneBellWakesAllSleepersOfTheRank) {
  std::atomic<int> woken{0};
  std::vector<std::thread> roles;
  for (int i = 0; i < 4; ++i) {
    roles.emplace_back([&] {
      HostWaiter waiter(base_, sleepy());
      const auto result = waiter.wait([&] { return has_reached(base_, layout_, 1, 1); }, nothing);
      if (result == WaitResult::ready && waiter.last_waited() < kPatience) ++woken;
    });
  }
  while (std::atomic_ref(*arena_bell(base_).sleepers).load() < 4) std::this_thread::yield();
  publish_word(other_->peer(Rank{0}), layout_, 1, 1);
  for (std::thread& t : roles) t.join();
  EXPECT_EQ(woken, 4);
  EXPECT_EQ(*arena_bell(base_).sleepers, 0u);
}

TEST_F(Wait, AWordStoredBetweenTheLookAndTheSleepIsNotSleptOver) {
  WaitOptions options = sleepy();
  HostWaiter waiter(base_, options);
  int looks = 0;
  const auto ready = [&] {
    const bool is_there = has_reached(base_, layout_, 0, 1);
    if (++looks == 2) publish_word(base_, layout_, 0, 1);  // the look before the sleep
    return is_there;
  };
  EXPECT_EQ(waiter.wait(ready, nothing), WaitResult::ready);
  EXPECT_LT(waiter.last_waited(), kPatience);
}

TEST_F(Wait, AThrowingConditionLeavesNoSleeperBehind) {
  HostWaiter waiter(base_, sleepy());
  int looks = 0;
  const auto ready = [&]() -> bool {
    if (++looks == 2) throw std::runtime_error("looked twice");
    return false;
  };
  EXPECT_THROW(waiter.wait(ready, nothing), std::runtime_error);
  EXPECT_EQ(*arena_bell(base_).sleepers, 0u);
}

TEST_F(Wait, ALongWaitSaysWhatItWaitsForBeforeItsDeadline) {
  expect_given_time(50ms, [&](std::chrono::milliseconds every) {
    std::vector<std::string> lines;
    const LogSink old = set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    WaitOptions options = sleepy();
    options.deadline = 5 * every / 2;
    options.report_every = every;
    HostWaiter waiter(base_, options);
    EXPECT_EQ(waiter.wait([] { return false; }, [] { return std::string("chunk 3 of rank 1"); }), WaitResult::deadline);
    set_log_sink(old);
    for (const std::string& line : lines) EXPECT_NE(line.find("chunk 3 of rank 1"), std::string::npos) << line;
    return lines.size() == 2 ? "" : std::to_string(lines.size()) + " reports in two and a half times";
  });
}

TEST_F(Wait, TimeWaitedAddsUp) {
  WaitOptions options = sleepy();
  options.deadline = 10ms;
  HostWaiter waiter(base_, options);
  waiter.wait([] { return false; }, nothing);
  waiter.wait([] { return false; }, nothing);
  EXPECT_GE(waiter.total_waited(), 20ms);
  EXPECT_LT(waiter.last_waited(), waiter.total_waited());
}

struct Match {
  PingPongResult first;
  PingPongResult second;
};

class WaitStress : public Wait {
 protected:
  // Plays `rounds` more.
  Match play_both(Epoch rounds, const WaitOptions& first, const WaitOptions& second, int64_t jitter_loops) {
    const Epoch begin = played_ + 1;
    const Epoch end = played_ += rounds;
    Match match;
    std::thread opponent([&] {
      const PingPong side = {layout_, other_->base(), other_->peer(Rank{0}), Rank{1}, second, jitter_loops};
      match.second = play(side, begin, end, kPatience);
      // A side that gave up lets the other go.
      if (match.second.longest_wait > kPatience) raise_abort(base_);
    });
    const PingPong side = {layout_, base_, arena_->peer(Rank{1}), Rank{0}, first, 0};
    match.first = play(side, begin, end, kPatience);
    if (match.first.longest_wait > kPatience) raise_abort(other_->base());
    opponent.join();
    EXPECT_EQ(match.first.last, WaitResult::ready);
    EXPECT_EQ(match.second.last, WaitResult::ready);
    EXPECT_LT(match.first.longest_wait, kPatience);
    EXPECT_LT(match.second.longest_wait, kPatience);
    return match;
  }

 private:
  Epoch played_ = 0;
};

// In how many rounds a side sleeps is the machine's affair: an answer that is quick enough is seen on the way to sleep.
TEST_F(WaitStress, NoWakeUpIsLostBetweenTwoSleepers) {
  const int64_t kSleeps = kRounds / 10;
  int64_t sleeps = 0;
  for (int part = 0; part < 10 || (part < 1000 && sleeps < kSleeps && !HasFailure()); ++part) {
    const Match match = play_both(kRounds / 10, sleepy(), sleepy(), 0);
    sleeps += match.first.sleeps + match.second.sleeps;
  }
  EXPECT_GE(sleeps, kSleeps);
}

// The other answers at once, give or take some nanoseconds: its store meets the sleeper on its way to sleep.
TEST_F(WaitStress, NoWakeUpIsLostWhenTheStoreMeetsTheSleeperOnItsWay) {
  WaitOptions spinning = sleepy();
  spinning.spin = 50us;
  play_both(kRounds / 10, sleepy(), spinning, 400);
}

// The heart of the bell, without the sleep, so that the two meet in most rounds: both must not miss. Each side has the
// line that it will load in its cache, so that the load can be early and the store late.
TEST_F(Wait, EitherTheWriterSeesTheSleeperOrTheSleeperSeesTheWord) {
  std::atomic<Epoch> started{0};
  std::atomic<Epoch> written{0};
  std::atomic<bool> is_over{false};
  const auto lose_time = [](uint32_t& state, uint32_t most_loops) {
    state = state * 1664525u + 1013904223u;
    for (uint32_t i = (state >> 16) % most_loops; i > 0; --i) std::atomic_signal_fence(std::memory_order_seq_cst);
  };
  const auto await = [&](const std::atomic<Epoch>& word, Epoch e) {
    for (int looks = 0; word.load() < e && !is_over.load(); ++looks) {
      if (looks > 1000) std::this_thread::yield();
    }
  };
  std::thread writer([&] {
    uint32_t jitter = 1;
    volatile uint32_t sink = 0;
    for (Epoch e = 1; !is_over.load(); ++e) {
      await(started, e);
      sink = sink + std::atomic_ref(*arena_bell(base_).sleepers).load();
      lose_time(jitter, 64);
      publish_word(base_, layout_, 0, e);
      written.store(e);
    }
  });
  int64_t missed = 0;
  uint32_t jitter = 2;
  uint32_t rung = 0;
  const auto end = std::chrono::steady_clock::now() + 700ms;
  for (Epoch e = 1; missed == 0 && (e % 8 != 0 || std::chrono::steady_clock::now() < end); ++e) {
    const bool is_early = has_reached(base_, layout_, 0, e);
    started.store(e);
    lose_time(jitter, 2048);  // more: the writer begins one transfer of a cache line later
    const Sleeper sleeper(arena_bell(base_));
    const bool has_seen = has_reached(base_, layout_, 0, e);
    await(written, e);
    const uint32_t rung_now = std::atomic_ref(*arena_bell(base_).rung).load();
    if (!is_early && !has_seen && rung_now == rung) ++missed;
    rung = rung_now;
  }
  is_over.store(true);
  writer.join();
  EXPECT_EQ(missed, 0);
}

// A ring of one entry: the producer waits for room, the consumer for work, each on a bell of its own.
TEST_F(Wait, NoWakeUpIsLostBetweenTheTwoEndsOfARing) {
  constexpr uint64_t kCapacity = 1;
  LocalBell room;
  LocalBell work;
  std::atomic<uint64_t> head{0};
  std::atomic<uint64_t> tail{0};
  std::atomic<int> late{0};
  const auto wait_on = [&](LocalBell& bell, auto ready) {
    HostWaiter waiter(bell.view(), base_, sleepy());
    if (waiter.wait(ready, nothing) != WaitResult::ready || waiter.last_waited() > kPatience) ++late;
    return late == 0;
  };
  std::thread producer([&] {
    for (uint64_t i = 0; i < kRounds && wait_on(room, [&] { return i - tail.load() < kCapacity; }); ++i) {
      head.store(i + 1);
      work.wake();
    }
  });
  for (uint64_t i = 0; i < kRounds && wait_on(work, [&] { return head.load() > i; }); ++i) {
    tail.store(i + 1);
    room.wake();
  }
  producer.join();
  EXPECT_EQ(late, 0);
  EXPECT_EQ(tail, kRounds);
}

}  // namespace
}  // namespace tilewire

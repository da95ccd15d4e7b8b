#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <array>
#include <deque>
#include <map>
#include <random>
#include <thread>

#include "memory/words.h"
#include "transport/arrival.h"
#include "transport/arrival_sink.h"
#include "transport/pending_requests.h"
#include "transport/registered_ranges.h"
#include "transport/registry.h"
#include "transport/request_table.h"
#include "transport/word_tails.h"

namespace tilewire {
namespace {

template <class F>
std::string error_text(F&& f, ErrorKind kind) {
  try {
    f();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

TEST(ChooseArrival, TakesTheCheapestThatTheNetworkPromises) {
  const auto choose = [](bool ordered, bool values, bool immediate) {
    return choose_arrival({.name = "x",
                           .ordered_writes = ordered,
                           .value_writes = values,
                           .write_with_immediate = immediate,
                           .max_outstanding = 1})
        .strategy;
  };
  EXPECT_EQ(choose(true, true, false), ArrivalStrategy::ordered);
  EXPECT_EQ(choose(true, true, true), ArrivalStrategy::ordered);
  EXPECT_EQ(choose(true, false, true), ArrivalStrategy::counted);
  EXPECT_EQ(choose(false, true, true), ArrivalStrategy::counted);
  EXPECT_EQ(choose(false, false, true), ArrivalStrategy::counted);
  EXPECT_EQ(choose(false, true, false), ArrivalStrategy::after_completion);
  error_text([&] { choose(true, false, false); }, ErrorKind::unavailable);
  error_text([] { choose_arrival({.name = "x", .ordered_writes = true, .value_writes = true}); },
             ErrorKind::unavailable);
}

TEST(RequestTable, CreditsStayBelowTheDepth) {
  for (uint32_t depth = 3; depth < 5000; ++depth) {
    ASSERT_LT(RequestTable::credits(depth), depth);
    ASSERT_GE(RequestTable::credits(depth), depth / 2);
  }
  EXPECT_EQ(RequestTable::credits(1), 2u);
  EXPECT_GE(RequestTable::credits(UINT32_MAX), 1000u);
}

TEST(RequestTable, IdIsGoodForOneCompletion) {
  RequestTable table(4);
  const uint32_t slot = table.add({.peer = Rank{1}}, 1, 2);
  const uint64_t id = table.at(slot).request.id;
  EXPECT_FALSE(table.take_completion(id + 1));
  EXPECT_TRUE(table.take_completion(id));
  EXPECT_FALSE(table.take_completion(id));
  table.release(slot);
  EXPECT_FALSE(table.take_completion(id));
  const uint32_t again = table.add({.peer = Rank{1}}, 1, 2);
  EXPECT_NE(table.at(again).request.id, id);
  EXPECT_FALSE(table.take_completion(id));
}

// Against plain lists: peers refuse at random, and room for all comes and goes.
TEST(PendingRequests, EachPeersComeInOrderAndNoneIsLostOrHeldUpByAnother) {
  constexpr size_t kPeers = 5, kSlots = 200;
  std::mt19937 random(7);
  PendingRequests pending(kPeers, kSlots);
  std::array<std::deque<uint32_t>, kPeers> expected;
  std::vector<uint32_t> free_slots;
  std::vector<size_t> peer_of(kSlots);
  for (uint32_t slot = 0; slot < kSlots; ++slot) free_slots.push_back(slot);
  for (int step = 0; step < 3000; ++step) {
    for (size_t more = random() % 20; more > 0 && !free_slots.empty(); --more) {
      const uint32_t slot = free_slots.back();
      free_slots.pop_back();
      peer_of[slot] = random() % kPeers;
      expected[peer_of[slot]].push_back(slot);
      pending.add(peer_of[slot], slot);
    }
    const uint32_t refusing = static_cast<uint32_t>(random() % (1u << kPeers));
    std::array<uint32_t, 16> slots;
    pending.begin_round();
    while (const size_t count = pending.next(std::span(slots).first(1 + random() % slots.size()))) {
      size_t posted = 0;
      for (; posted < count && (refusing >> peer_of[slots[posted]] & 1) == 0; ++posted) {
        std::deque<uint32_t>& list = expected[peer_of[slots[posted]]];
        ASSERT_EQ(list.front(), slots[posted]);
        list.pop_front();
        free_slots.push_back(slots[posted]);
      }
      pending.posted(posted);
      if (posted < count) pending.refuse();
    }
    for (size_t peer = 0; peer < kPeers; ++peer) {
      const bool is_willing = (refusing >> peer & 1) == 0;
      ASSERT_TRUE(!is_willing || expected[peer].empty()) << "held up by another";
    }
    const auto is_empty = [](const std::deque<uint32_t>& list) { return list.empty(); };
    ASSERT_EQ(pending.is_empty(), std::all_of(expected.begin(), expected.end(), is_empty));
  }
}

TEST(RegisteredRanges, JoinsNeighboursAndRefusesGaps) {
  RegisteredRanges ranges;
  ranges.add(0, 4096, 1 << 20);
  ranges.add(8192, 4096, 1 << 20);
  EXPECT_TRUE(ranges.has(0, 4096));
  EXPECT_FALSE(ranges.has(0, 4097));
  EXPECT_FALSE(ranges.has(4000, 8000));
  EXPECT_FALSE(ranges.has(4097, 1));
  EXPECT_FALSE(ranges.has(8192, UINT64_MAX));
  ranges.add(4096, 4096, 1 << 20);
  EXPECT_TRUE(ranges.has(4000, 8000));
  error_text([&] { ranges.add(1 << 20, 1, 1 << 20); }, ErrorKind::invalid_argument);
  error_text([&] { ranges.add(8, UINT64_MAX, 1 << 20); }, ErrorKind::invalid_argument);
}

TEST(RegisteredRanges, WhatIsTakenOutIsGoneAndItsNeighboursAreThere) {
  RegisteredRanges ranges;
  for (const uint64_t begin : {0, 4096, 8192}) ranges.add(begin, 4096, 1 << 20);
  ranges.add(1 << 16, 4096, 1 << 20);
  ranges.remove(4096, 4096);
  EXPECT_TRUE(ranges.has(0, 4096));
  EXPECT_FALSE(ranges.has(4095, 2));
  EXPECT_FALSE(ranges.has(8191, 2));
  EXPECT_TRUE(ranges.has(8192, 4096));
  ranges.remove(1 << 16, 4096);
  EXPECT_FALSE(ranges.has(1 << 16, 1));
  ranges.remove(0, 4096);
  EXPECT_FALSE(ranges.has(0, 1));
  EXPECT_TRUE(ranges.has(8192, 4096));
}

// Beside a map that grows and shrinks as it likes.
TEST(WordTails, HoldsTheLastOfEachWordThroughAnyOrderOfComingAndGoing) {
  constexpr size_t kMost = 12;
  WordTails tails(kMost);
  std::map<std::pair<int32_t, uint32_t>, uint32_t> expected;
  std::mt19937 random{7};
  for (uint32_t slot = 0; slot < 200'000; ++slot) {
    const std::pair<int32_t, uint32_t> key{random() % 3, random() % 16};
    const auto found = expected.find(key);
    if (found != expected.end() && random() % 2 == 0) {
      tails.erase(Rank{key.first}, key.second);
      expected.erase(found);
    } else if (found != expected.end() || expected.size() < kMost) {
      const auto before = tails.put(Rank{key.first}, key.second, slot);
      ASSERT_EQ(before.has_value(), found != expected.end()) << slot;
      if (before) {
        ASSERT_EQ(*before, found->second) << slot;
      }
      expected[key] = slot;
    }
  }
}

TEST(WordSink, OlderEpochNeverLowersAWord) {
  const ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 4}};
  std::vector<std::byte> arena(static_cast<size_t>(layout.total_bytes()));
  WordSink sink(arena.data(), layout);
  EXPECT_TRUE(sink.deliver({3, 8}));
  EXPECT_TRUE(sink.deliver({3, 7}));
  EXPECT_EQ(load_word(arena.data(), layout, 3), 8u);
}

// The relay role of a GPU rank, as a thread.
TEST(ArrivalRing, RelayThreadGetsEveryArrivalInOrder) {
  ArrivalRing ring(64);
  constexpr uint32_t kArrivals = 5000;
  std::vector<Arrival> seen;
  std::thread relay([&] {
    ArrivalDrain drain = ring.drain_side();
    std::array<Arrival, 5> batch;
    while (seen.size() < kArrivals) {
      const size_t n = drain.drain(batch);
      seen.insert(seen.end(), batch.begin(), batch.begin() + static_cast<ptrdiff_t>(n));
      if (n == 0) std::this_thread::yield();
    }
  });
  for (uint32_t i = 0; i < kArrivals; ++i) {
    while (!ring.sink().deliver({i, (Epoch{1} << 33) + i})) std::this_thread::yield();
  }
  relay.join();
  for (uint32_t i = 0; i < kArrivals; ++i) ASSERT_EQ(seen[i], (Arrival{i, (Epoch{1} << 33) + i}));
}

TEST(ArrivalRing, FullRingRefuses) {
  ArrivalRing ring(2);
  EXPECT_TRUE(ring.sink().deliver({1, 1}));
  EXPECT_TRUE(ring.sink().deliver({2, 1}));
  EXPECT_FALSE(ring.sink().deliver({3, 1}));
}

TEST(Registry, AutoTakesWhatIsThere) {
  Options options;
  options.transport = "auto";
  EXPECT_EQ(choose_transport(options).name, "emulated");
  options.transport = "emulated";
  EXPECT_EQ(choose_transport(options).name, "emulated");
}

TEST(Registry, MissingTransportListsWhatIsThere) {
  Options options;
  options.transport = "carrier-pigeon";
  const std::string text = error_text([&] { choose_transport(options); }, ErrorKind::unavailable);
  EXPECT_NE(text.find("carrier-pigeon"), std::string::npos) << text;
  EXPECT_NE(text.find("there are: emulated"), std::string::npos) << text;
}

TEST(Registry, FaultScriptIsReadBeforeAnythingRuns) {
  Options options;
  options.fault = "explode";
  std::vector<std::byte> arena(4096);
  const TransportContext context{.rank = Rank{0}, .ranks = 1, .arena = arena.data(), .arena_bytes = arena.size()};
  error_text([&] { make_transport(options, context); }, ErrorKind::invalid_argument);
}

}  // namespace
}  // namespace tilewire

#include "transport/command_queue.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace tilewire {
namespace {

using namespace std::chrono_literals;

// Position-coded: any mix of two commands, or of two laps, is seen.
PackedCommand coded(uint64_t producer, uint64_t number) {
  const uint64_t mixed = (number * 0x9E3779B97F4A7C15u) ^ (producer << 40);
  return {low_bits(number | (producer << 48), 63), low_bits(mixed, 63)};
}

bool same(const PackedCommand& a, const PackedCommand& b) { return a.first == b.first && a.second == b.second; }

// A producer that writes an entry half by half, to look in between.
struct HalfWriter {
  RingMemory memory;
  uint64_t head = 0;

  void half(bool second, PackedCommand c) {
    PackedCommand& entry = memory.entry(head);
    uint64_t& word = second ? entry.second : entry.first;
    std::atomic_ref(word).store((second ? c.second : c.first) | memory.lap_bit(head), std::memory_order_release);
  }
};

TEST(CommandQueue, RefusesEntryCountsThatAreNoPowerOfTwo) {
  for (const uint32_t entries : {0u, 3u, 100u, (1u << 20) + 1, 1u << 21}) {
    try {
      CommandRing ring(entries);
      FAIL() << entries << " entries were taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("entries = "), std::string::npos);
    }
  }
}

TEST(CommandQueue, EmptyRingGivesNothingAtFirst) {
  CommandRing ring(4);
  CommandConsumer consumer(ring.memory());
  PackedCommand out;
  EXPECT_FALSE(consumer.try_take(out));
}

TEST(CommandQueue, AllZeroCommandIsSeen) {
  CommandRing ring(2);
  CommandProducer producer(ring.memory());
  CommandConsumer consumer(ring.memory());
  for (int i = 0; i < 9; ++i) {
    ASSERT_TRUE(producer.try_post(PackedCommand{}));
    PackedCommand out{1, 1};
    ASSERT_TRUE(consumer.try_take(out)) << i;
    EXPECT_TRUE(same(out, {})) << i;
    EXPECT_FALSE(consumer.try_take(out)) << i;
    consumer.release();
  }
}

TEST(CommandQueue, FullRingRefusesAndLosesNothing) {
  for (const uint32_t entries : {1u, 2u, 16u}) {
    CommandRing ring(entries);
    CommandProducer producer(ring.memory());
    CommandConsumer consumer(ring.memory());
    for (uint32_t i = 0; i < entries; ++i) ASSERT_TRUE(producer.try_post(coded(1, i)));
    EXPECT_FALSE(producer.try_post(coded(1, entries)));
    PackedCommand out;
    ASSERT_TRUE(consumer.try_take(out));
    EXPECT_FALSE(producer.try_post(coded(1, entries))) << "an entry was reused before it was released";
    consumer.release();
    ASSERT_TRUE(producer.try_post(coded(1, entries)));
    for (uint32_t i = 1; i <= entries; ++i) {
      ASSERT_TRUE(consumer.try_take(out));
      EXPECT_TRUE(same(out, coded(1, i)));
    }
  }
}

TEST(CommandQueue, KeepsOrderOverManyLaps) {
  for (const uint32_t entries : {1u, 2u, 4u, 64u}) {
    CommandRing ring(entries);
    CommandProducer producer(ring.memory());
    CommandConsumer consumer(ring.memory());
    std::mt19937 random(entries);
    uint64_t posted = 0;
    uint64_t seen = 0;
    while (seen < 1000ull * entries) {
      for (uint32_t n = random() % (entries + 1); n > 0; --n) posted += producer.try_post(coded(2, posted)) ? 1 : 0;
      std::array<PackedCommand, 7> batch;
      const size_t n = consumer.take(std::span(batch).first(1 + random() % batch.size()));
      for (size_t i = 0; i < n; ++i) ASSERT_TRUE(same(batch[i], coded(2, seen++)));
      if (random() % 2 == 0) consumer.release();
    }
    EXPECT_LE(seen, posted);
  }
}

TEST(CommandQueue, HalfWrittenEntryIsNotAcceptedInEitherOrder) {
  for (const bool second_first : {false, true}) {
    for (const uint32_t entries : {1u, 4u}) {
      CommandRing ring(entries);
      HalfWriter writer{ring.memory()};
      CommandConsumer consumer(ring.memory());
      for (; writer.head < 5 * entries; ++writer.head) {
        const PackedCommand command = coded(3, writer.head);
        PackedCommand out;
        writer.half(second_first, command);
        ASSERT_FALSE(consumer.try_take(out)) << "torn entry " << writer.head << " was accepted";
        writer.half(!second_first, command);
        ASSERT_TRUE(consumer.try_take(out));
        ASSERT_TRUE(same(out, command));
        consumer.release();
      }
    }
  }
}

TEST(CommandQueue, SlowHalvesFromAnotherThreadAreNotTorn) {
  CommandRing ring(4);
  constexpr uint64_t kCommands = 400;
  std::thread producer([&] {
    HalfWriter writer{ring.memory()};
    std::mt19937 random(7);
    for (; writer.head < kCommands; ++writer.head) {
      while (writer.head - std::atomic_ref(ring.memory().header->tail).load(std::memory_order_acquire) >= 4) {
        std::this_thread::yield();
      }
      const bool second_first = random() % 2 == 0;
      writer.half(second_first, coded(4, writer.head));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 50));
      writer.half(!second_first, coded(4, writer.head));
    }
  });
  CommandConsumer consumer(ring.memory());
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  for (uint64_t i = 0; i < kCommands && std::chrono::steady_clock::now() < deadline;) {
    PackedCommand out;
    if (!consumer.try_take(out)) {
      std::this_thread::yield();
      continue;
    }
    EXPECT_TRUE(same(out, coded(4, i))) << i;
    consumer.release();
    ++i;
  }
  EXPECT_EQ(consumer.taken(), kCommands);
  producer.join();
}

// Eight producers on eight rings, one consumer that stalls now and then.
TEST(CommandQueue, EightProducersLoseDoubleAndTearNothing) {
  constexpr int kProducers = 8;
  constexpr uint64_t kCommands = 100'000;
  std::vector<std::unique_ptr<CommandRing>> rings;
  std::vector<CommandConsumer> consumers;
  std::vector<std::thread> threads;
  for (int p = 0; p < kProducers; ++p) {
    rings.push_back(std::make_unique<CommandRing>(p % 2 == 0 ? 1024 : 128));
    consumers.emplace_back(rings.back()->memory());
  }
  for (int p = 0; p < kProducers; ++p) {
    threads.emplace_back([memory = rings[p]->memory(), p] {
      CommandProducer producer(memory);
      std::mt19937_64 random(p);  // NOLINT: the same content on every run
      for (uint64_t i = 0; i < kCommands; ++i) {
        const PackedCommand command{low_bits(random(), 63), low_bits(random(), 63)};
        while (!producer.try_post(command)) std::this_thread::yield();
      }
    });
  }
  std::vector<std::mt19937_64> expected;
  for (int p = 0; p < kProducers; ++p) expected.emplace_back(p);
  std::mt19937 random(99);
  uint64_t seen = 0;
  const auto deadline = std::chrono::steady_clock::now() + 50s;
  while (seen < kProducers * kCommands && std::chrono::steady_clock::now() < deadline) {
    bool any = false;
    for (int p = 0; p < kProducers; ++p) {
      std::array<PackedCommand, 64> batch;
      const size_t n = consumers[p].take(batch);
      for (size_t i = 0; i < n; ++i) {
        const uint64_t first = low_bits(expected[p](), 63);
        const uint64_t second = low_bits(expected[p](), 63);
        ASSERT_TRUE(same(batch[i], {first, second})) << "producer " << p;
      }
      if (n > 0 && random() % 4 != 0) consumers[p].release();
      if (n == 0) consumers[p].release();
      seen += n;
      any |= n > 0;
    }
    if (random() % 256 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    if (!any) std::this_thread::yield();
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(seen, kProducers * kCommands);
  for (CommandConsumer& consumer : consumers) {
    PackedCommand out;
    EXPECT_FALSE(consumer.try_take(out)) << "a command came twice";
  }
}

// The consumer reads the payload the moment the command appears: everything written before the post must be there.
TEST(CommandQueue, PayloadIsThereWhenItsCommandAppears) {
  constexpr uint32_t kEntries = 16;
  constexpr uint64_t kCommands = 20'000;
  constexpr size_t kWords = 64;
  CommandRing ring(kEntries);
  std::vector<std::array<uint64_t, kWords>> payload(kEntries);
  std::thread thread([&] {
    CommandProducer producer(ring.memory());
    for (uint64_t i = 0; i < kCommands; ++i) {
      // The payload slot is free once the ring has room for one more, so look at the tail first.
      while (i - std::atomic_ref(ring.memory().header->tail).load(std::memory_order_acquire) >= kEntries) {
        std::this_thread::yield();
      }
      for (size_t w = 0; w < kWords; ++w) payload[i % kEntries][w] = coded(w, i).second;
      ASSERT_TRUE(producer.try_post(coded(5, i)));
    }
  });
  CommandConsumer consumer(ring.memory());
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  for (uint64_t i = 0; i < kCommands && std::chrono::steady_clock::now() < deadline;) {
    PackedCommand out;
    if (!consumer.try_take(out)) {
      std::this_thread::yield();
      continue;
    }
    uint64_t wrong = 0;
    for (size_t w = 0; w < kWords; ++w) wrong += payload[i % kEntries][w] != coded(w, i).second ? 1 : 0;
    EXPECT_EQ(wrong, 0u) << "payload of command " << i;
    consumer.release();
    ++i;
  }
  EXPECT_EQ(consumer.taken(), kCommands);
  thread.join();
}

}  // namespace
}  // namespace tilewire

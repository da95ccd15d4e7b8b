// The ring between the emulated transport and what moves data for it, with a thread in the place of the copy kernel.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "transport/emulated/emulated_transport.h"
#include "transport/emulated/local_reach.h"
#include "transport/emulated/wire_writer.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

constexpr uint32_t kEntries = 8;

class RingStorage {
 public:
  RingStorage() : bytes_(WireRing::bytes(kEntries) + 128) {
    auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    ring_ = WireRing::at(bytes_.data() + (128 - address % 128), kEntries);
  }
  const WireRing& ring() const { return ring_; }

 private:
  std::vector<std::byte> bytes_;
  WireRing ring_;
};

// Takes entry number `position` when it is there.
bool take(const WireRing& ring, uint64_t position, WireMove& move) {
  WireEntry seen;
  for (int i = 3; i >= 0; --i) {
    seen.words[i] = std::atomic_ref(ring.entry(position).words[i]).load(std::memory_order_acquire);
  }
  if (!is_there(seen, ring.lap_bit(position))) return false;
  move = unpack(seen);
  return true;
}

void say_landed(const WireRing& ring, uint64_t count) {
  std::atomic_ref(ring.header->landed).store(count, std::memory_order_release);
}

WriteRequest data(uint64_t bytes, uint64_t from = 64, uint64_t to = 128) {
  return {.kind = RequestKind::write, .peer = Rank{1}, .src_offset = from, .dst_offset = to, .bytes = bytes};
}

TEST(WireMoveTest, EveryFieldComesBackWithBothLapBits) {
  const WireMove moves[] = {
      {.peer = Rank{4095}, .units = (1u << 24) - 1, .src_offset = (uint64_t{1} << 37) - 16, .dst_offset = 48},
      {.peer = Rank{0}, .is_value = true, .dst_offset = 8, .value = (uint64_t{1} << 60) + 1},
  };
  for (const WireMove& move : moves) {
    for (const uint64_t lap : {uint64_t{0}, kLapBit}) {
      EXPECT_TRUE(unpack(pack(move, lap)) == move);
      EXPECT_TRUE(is_there(pack(move, lap), lap));
      for (int i = 0; i < 4; ++i) {
        WireEntry torn = pack(move, lap);
        torn.words[i] ^= kLapBit;
        EXPECT_FALSE(is_there(torn, lap)) << "word " << i << " is of the lap before";
      }
    }
  }
}

TEST(WireWriterTest, AFullRingRefusesUntilSomethingHasLanded) {
  const RingStorage storage;
  WireWriter writer(storage.ring());
  for (uint32_t i = 0; i < kEntries; ++i) EXPECT_TRUE(writer.begin(data(16)));
  EXPECT_FALSE(writer.begin(data(16)));
  EXPECT_EQ(writer.landed(), 0u);
  say_landed(storage.ring(), 3);
  EXPECT_EQ(writer.landed(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(writer.begin(data(16)));
  EXPECT_FALSE(writer.begin(data(16)));
}

TEST(WireWriterTest, EntriesComeInOrderOverManyLaps) {
  const RingStorage storage;
  WireWriter writer(storage.ring());
  WireMove move;
  for (uint64_t i = 0; i < 5 * kEntries; ++i) {
    EXPECT_FALSE(take(storage.ring(), i, move)) << "what lies there is of the lap before";
    ASSERT_TRUE(writer.begin(data(16 * (i + 1), 32 * i)));
    ASSERT_TRUE(take(storage.ring(), i, move));
    EXPECT_EQ(move.units, i + 1);
    EXPECT_EQ(move.src_offset, 32 * i);
    say_landed(storage.ring(), i + 1);
  }
}

// Moves what the rings say, between the arenas of a test network.
class ThreadWire {
 public:
  ThreadWire(TestNetwork*& net, const std::vector<RingStorage>& rings)
      : thread_([this, &net, &rings] {
          std::vector<uint64_t> read(rings.size());
          while (!must_stop_) {
            for (size_t r = 0; net != nullptr && r < rings.size(); ++r) {
              WireMove move;
              if (!take(rings[r].ring(), read[r], move)) continue;
              std::byte* to = net->arena(move.peer.value) + move.dst_offset;
              if (move.is_value) {
                std::atomic_ref(*reinterpret_cast<uint64_t*>(to)).store(move.value);
              } else {
                std::memcpy(to, net->arena(static_cast<int32_t>(r)) + move.src_offset, move.units * kWireUnitBytes);
              }
              say_landed(rings[r].ring(), ++read[r]);
            }
            std::this_thread::yield();
          }
        }) {}
  ~ThreadWire() {
    must_stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> must_stop_{false};
  std::thread thread_;
};

void send_and_check(Personality personality) {
  const std::vector<RingStorage> rings(2);
  TestNetwork net(2, [&](TransportContext context) {
    const WireRing ring = rings[static_cast<size_t>(context.rank.value)].ring();
    context.local_reach =
        std::make_shared<LocalReach>(LocalReach{.make_writer = [ring] { return std::make_unique<WireWriter>(ring); }});
    return make_emulated_transport(context, {.personality = personality});
  });
  TestNetwork* there = &net;
  const ThreadWire wire(there, rings);
  const auto base = static_cast<uint64_t>(net.layout().half_offset(0));
  constexpr uint64_t kSends = 40, kBytes = 4096;
  const bool has_immediate = personality == Personality::srd;
  Transport& sender = net.transport(0);
  uint64_t posted = 0, completed = 0, arrived = 0;
  ASSERT_TRUE(step_until([&] {
    if (posted < kSends) {
      std::memset(net.arena(0) + base + posted * kBytes, static_cast<int>(posted + 1), kBytes);
      WriteRequest request = data(kBytes, base + posted * kBytes, base + posted * kBytes);
      request.kind = has_immediate ? RequestKind::write_with_immediate : RequestKind::write;
      request.immediate = static_cast<uint32_t>(posted);
      request.id = posted;
      posted += sender.post({&request, 1});
    }
    Event events[8];
    completed += sender.poll(events);
    const size_t n = net.transport(1).poll(events);
    for (size_t i = 0; i < n; ++i) {
      const std::byte* landed = net.arena(1) + base + events[i].immediate * kBytes;
      EXPECT_EQ(landed[kBytes - 1], std::byte(events[i].immediate + 1)) << "an immediate came before its data";
    }
    arrived += n;
    return completed == kSends && (!has_immediate || arrived == kSends);
  }));
  for (uint64_t i = 0; i < kSends; ++i) EXPECT_EQ(net.arena(1)[base + i * kBytes], std::byte(i + 1));
}

TEST(WireTransportTest, ACompletionAndAnImmediateComeBehindTheDataTheyAreFor) {
  send_and_check(Personality::rc);
  send_and_check(Personality::srd);
}

}  // namespace
}  // namespace tilewire

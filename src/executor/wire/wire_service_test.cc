// The wire process and ranks that join it, over a driver that is none.
#include "executor/wire/wire_service.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <optional>

#include "base/error_of.h"
#include "executor/wire/host_wire.h"
#include "memory/cuda/cuda_arena.h"
#include "testing/given_time.h"
#include "transport/emulated/wire_link.h"
#include "transport/emulated/wire_writer.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kPage = int64_t{2} << 20;

class WireServiceTest : public ::testing::Test {
 protected:
  void SetUp() override { FakeGpu::start(); }
  void TearDown() override {
    EXPECT_EQ(FakeGpu::live_text(), "");
    EXPECT_EQ(FakeGpu::broken_rules(), 0);
  }
};

ArenaConfig arena_of(int32_t rank, int32_t ranks) {
  return {.rank = Rank{rank},
          .layout = {.flags = {.ranks = ranks, .max_chunks = 16},
                     .half_stride_bytes = 8 * kPage,
                     .user_stride_bytes = 8 * kPage},
          .half_bytes = kPage,
          .user_bytes = 0};
}

Nonce job(uint8_t number) {
  Nonce nonce{};
  nonce[0] = std::byte{number};
  return nonce;
}

WireLinkConfig link_config(const HostWire& wire, int32_t rank, int32_t ranks) {
  return {.socket = wire.socket(),
          .secret = HostWire::kSecret,
          .version = HostWire::kVersion,
          .job = job(1),
          .rank = Rank{rank},
          .ranks = ranks,
          .arena_bytes = arena_of(rank, ranks).layout.total_bytes(),
          .ring_entries = 16};
}

// A rank's arena and link, and what it writes into its ring.
class WiredRank {
 public:
  WiredRank(const HostWire& wire, int32_t rank, int32_t ranks) : WiredRank(link_config(wire, rank, ranks)) {}
  explicit WiredRank(const WireLinkConfig& config)
      : arena(open_device(), arena_of(config.rank.value, config.ranks)),
        link(config, deadline_in(10s)),
        writer(link.ring()) {
    tell();
  }

  void tell() {
    link.add(arena.exports().subspan(known_), deadline_in(10s));
    known_ = arena.exports().size();
  }
  void start() {
    link.ask_start({}, -1);
    link.await_start(deadline_in(10s));
  }
  void put(int64_t offset, uint64_t value) { word(offset) = value; }
  uint64_t& word(int64_t offset) { return *reinterpret_cast<uint64_t*>(arena.base() + offset); }
  // One unit from the own arena to that of `peer`; false when it has not landed soon.
  bool move(int32_t peer, int64_t from, int64_t to) {
    if (!writer.begin({.peer = Rank{peer},
                       .src_offset = static_cast<uint64_t>(from),
                       .dst_offset = static_cast<uint64_t>(to),
                       .bytes = kWireUnitBytes})) {
      return false;
    }
    ++moves_;
    const SteadyTime limit = deadline_in(20s);
    while (writer.landed() < moves_ && steady_now() < limit) std::this_thread::sleep_for(100us);
    return writer.landed() == moves_;
  }

 private:
  static std::shared_ptr<const CudaDevice> open_device() {
    return std::make_shared<const CudaDevice>(0, FakeGpu::driver());
  }

 public:
  CudaArena arena;
  WireLink link;
  WireWriter writer;

 private:
  size_t known_ = 0;
  uint64_t moves_ = 0;
};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_F(WireServiceTest, DataOfEachRankReachesEachOther) {
  HostWire wire;
  constexpr int32_t kRanks = 3;
  std::vector<std::unique_ptr<WiredRank>> ranks;
  for (int32_t r = 0; r < kRanks; ++r) ranks.push_back(std::make_unique<WiredRank>(wire, r, kRanks));
  ranks[0]->start();
  const int64_t half = ranks[0]->arena.layout().half_offset(0);
  for (int32_t from = 0; from < kRanks; ++from) {
    for (int32_t to = 0; to < kRanks; ++to) {
      ranks[static_cast<size_t>(from)]->put(half, static_cast<uint64_t>(100 + 10 * from + to));
      EXPECT_TRUE(ranks[static_cast<size_t>(from)]->move(to, half, half + 64 * (1 + from)));
      EXPECT_EQ(ranks[static_cast<size_t>(to)]->word(half + 64 * (1 + from)), 100u + 10u * from + to);
    }
  }
  EXPECT_EQ(ranks[0]->link.place().ctas, 4);
}

TEST_F(WireServiceTest, NothingMovesBeforeTheStartAndRingsGoOnWhereTheyWere) {
  HostWire wire;
  WiredRank a(wire, 0, 2), b(wire, 1, 2);
  const int64_t half = a.arena.layout().half_offset(0);
  a.put(half, 7);
  ASSERT_TRUE(a.writer.begin({.peer = Rank{1},
                              .src_offset = static_cast<uint64_t>(half),
                              .dst_offset = static_cast<uint64_t>(half),
                              .bytes = kWireUnitBytes}));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(a.writer.landed(), 0u);
  b.start();
  const SteadyTime limit = deadline_in(20s);
  while (a.writer.landed() == 0 && steady_now() < limit) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(b.word(half), 7u);
}

// More moves than the ring has entries, with growth in between.
TEST_F(WireServiceTest, MemoryThatIsAppendedIsReachedToo) {
  HostWire wire;
  WiredRank a(wire, 0, 2), b(wire, 1, 2);
  a.start();
  const int64_t half = a.arena.layout().half_offset(0), last = half + 5 * kPage - 64;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(a.move(1, half, half + 64));
    if (round == 0) {
      b.arena.grow(5 * kPage, 0);
      b.tell();
      a.arena.grow(5 * kPage, 3 * kPage);
      a.tell();
    }
    if (round == 1) {
      a.put(last, 11);
      EXPECT_TRUE(a.move(1, last, last));
      EXPECT_EQ(b.word(last), 11u);
      std::byte* const user = a.arena.allocate_user(64);
      *reinterpret_cast<uint64_t*>(user) = 12;
      EXPECT_TRUE(a.move(1, user - a.arena.base(), last));
      EXPECT_EQ(b.word(last), 12u);
    }
  }
  EXPECT_EQ(wire.log.starts, 3) << "one start, and one behind each growth";
}

TEST_F(WireServiceTest, RankThatLeavesOrDiesLeavesTheOthersServed) {
  HostWire wire;
  WiredRank a(wire, 0, 3), b(wire, 1, 3);
  auto c = std::make_unique<WiredRank>(wire, 2, 3);
  a.start();
  const int64_t half = a.arena.layout().half_offset(0);
  c.reset();
  std::this_thread::sleep_for(100ms);
  a.put(half, 21);
  EXPECT_TRUE(a.move(1, half, half + 64));
  EXPECT_EQ(b.word(half + 64), 21u);
  EXPECT_TRUE(a.move(2, half, half + 64)) << "its memory stays until all have left";
}

TEST_F(WireServiceTest, OneCommunicatorAfterTheOther) {
  HostWire wire;
  for (uint8_t number = 1; number <= 3; ++number) {
    WireLinkConfig first = link_config(wire, 0, 2), second = link_config(wire, 1, 2);
    first.job = second.job = job(number);
    WiredRank a(first), b(second);
    b.start();
    const int64_t half = a.arena.layout().half_offset(0);
    a.put(half, number);
    EXPECT_TRUE(a.move(1, half, half + 64));
    EXPECT_EQ(b.word(half + 64), number);
  }
}

TEST_F(WireServiceTest, RanksOfTheNextCommunicatorWaitUntilTheLastOneHasLeft) {
  HostWire wire;
  auto a = std::make_unique<WiredRank>(wire, 0, 2);
  auto b = std::make_unique<WiredRank>(wire, 1, 2);
  WireLinkConfig next = link_config(wire, 0, 1);
  next.job = job(2);
  EXPECT_TRUE(holds(error_of([&] { WireLink link(next, deadline_in(200ms)); }), "still serves another communicator"));
  std::thread leaves([&] {
    std::this_thread::sleep_for(100ms);
    a.reset();
    std::this_thread::sleep_for(100ms);
    b.reset();
  });
  WiredRank c(next);
  EXPECT_EQ(b, nullptr) << "it was let in too early";
  leaves.join();
  c.start();
}

TEST_F(WireServiceTest, OtherSecretsAreRefusedOnBothSides) {
  HostWire wire("another secret, of another job");
  const std::string error = error_of([&] { WireLink link(link_config(wire, 0, 2), deadline_in(20s)); });
  EXPECT_TRUE(holds(error, "of another job") && holds(error, "TILEWIRE_SECRET")) << error;
}

UniqueFd connect_to(const HostWire& wire) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, wire.socket().data(), wire.socket().size());
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

FdPacket await_packet(const UniqueFd& socket, Received& received) {
  FdPacket packet;
  const SteadyTime limit = deadline_in(20s);
  while ((received = receive_packet(socket.get(), packet)) == Received::nothing_yet && steady_now() < limit) {
    std::this_thread::sleep_for(1ms);
  }
  return packet;
}

// It cares for no proof of the wire's; its own is wrong.
TEST_F(WireServiceTest, WhoHasNoSecretGetsNoAnswer) {
  HostWire wire;
  const UniqueFd liar = connect_to(wire);
  ASSERT_TRUE(send_packet(liar.get(), WireHello{.version = HostWire::kVersion}.pack()));
  Received received{};
  EXPECT_EQ(kind_of(await_packet(liar, received).bytes), WirePacket::challenge);
  WireJoin join{.job = job(1), .rank = Rank{0}, .ranks = 1, .arena_bytes = kPage, .ring_entries = 16};
  ASSERT_TRUE(send_packet(liar.get(), join.pack(), liar.get()));
  await_packet(liar, received);
  EXPECT_EQ(received, Received::gone);
}

TEST_F(WireServiceTest, StrangersAndTheirNoiseDisturbNobody) {
  HostWire wire;
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 4; ++i) strangers.push_back(connect_to(wire));
  EXPECT_TRUE(send_packet(strangers[0].get(), to_bytes("noise")));
  EXPECT_TRUE(send_packet(strangers[1].get(), pack(WirePacket::start)));
  EXPECT_TRUE(send_packet(strangers[2].get(), Bytes(1500, std::byte{1})));
  Received received{};
  for (int i = 0; i < 3; ++i) {
    await_packet(strangers[static_cast<size_t>(i)], received);
    EXPECT_EQ(received, Received::gone) << i;
  }
  WiredRank a(wire, 0, 1);
  a.start();
  const int64_t half = a.arena.layout().half_offset(0);
  EXPECT_TRUE(a.move(0, half, half + 64));
}

TEST_F(WireServiceTest, OtherVersionsAreNamedWithBothNumbers) {
  HostWire wire;
  WireLinkConfig config = link_config(wire, 0, 2);
  config.version = "99.0";
  const std::string error = error_of([&] { WireLink link(config, deadline_in(20s)); });
  EXPECT_TRUE(holds(error, "99.0 here") && holds(error, HostWire::kVersion)) << error;
}

TEST_F(WireServiceTest, RanksThatDoNotFitAreRefused) {
  HostWire wire;
  WiredRank a(wire, 0, 2);
  const auto refusal = [&](const std::function<void(WireLinkConfig&)>& change) {
    WireLinkConfig config = link_config(wire, 1, 2);
    change(config);
    return error_of([&] { WireLink link(config, deadline_in(20s)); });
  };
  EXPECT_TRUE(holds(refusal([](WireLinkConfig& c) { c.rank = Rank{0}; }), "here already"));
  EXPECT_TRUE(holds(refusal([](WireLinkConfig& c) { c.rank = Rank{2}; }), "does not fit"));
  EXPECT_TRUE(holds(refusal([](WireLinkConfig& c) { c.ranks = 3; }), "does not fit"));
  EXPECT_TRUE(holds(refusal([](WireLinkConfig& c) { c.arena_bytes += kPage; }), "does not fit"));
  WiredRank b(wire, 1, 2);
  b.start();
}

TEST_F(WireServiceTest, MemoryThatIsNoneOfTheArenaIsRefused) {
  HostWire wire;
  WiredRank a(wire, 0, 1);
  const ArenaExport first = a.arena.exports()[0];
  const auto refusal = [&](ArenaRange range, int fd) {
    WireLinkConfig config = link_config(wire, 0, 1);
    config.job = job(9);
    HostWire other;
    config.socket = other.socket();
    WireLink link(config, deadline_in(20s));
    const ArenaExport piece{range, fd};
    return error_of([&] { link.add({&piece, 1}, deadline_in(20s)); });
  };
  EXPECT_EQ(refusal(first.range, first.fd), "");
  EXPECT_TRUE(holds(refusal({first.range.begin_bytes, kPage / 2}, first.fd), "no new piece"));
  EXPECT_TRUE(holds(refusal({100 * kPage, kPage}, first.fd), "no new piece"));
  EXPECT_TRUE(holds(refusal({-kPage, kPage}, first.fd), "no new piece"));
  EXPECT_TRUE(holds(refusal({0, 2 * first.range.bytes}, first.fd), "is not its arena"));
  EXPECT_TRUE(holds(refusal(first.range, 0), "is not its arena"));
  EXPECT_TRUE(holds(error_of([&] { a.link.add({&first, 1}, deadline_in(20s)); }), "no new piece")) << "it is mapped";
}

TEST_F(WireServiceTest, StartBeforeAllAreThereIsRefused) {
  HostWire wire;
  WiredRank a(wire, 0, 2);
  EXPECT_TRUE(holds(error_of([&] { a.start(); }), "rank 1"));
}

TEST_F(WireServiceTest, WireThatEndsIsToldOnceAndByTheNextRequest) {
  auto wire = std::make_unique<HostWire>();
  std::atomic<int> losses{0};
  WireLinkConfig config = link_config(*wire, 0, 1);
  config.on_lost = [&](const WireFailure& failure) {
    EXPECT_EQ(failure.kind, ErrorKind::peer_lost);
    ++losses;
  };
  WiredRank a(config);
  a.start();
  EXPECT_EQ(wire->end(), "");
  const SteadyTime limit = deadline_in(20s);
  while (losses == 0 && steady_now() < limit) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(losses, 1);
  a.arena.grow(2 * kPage, 0);
  EXPECT_TRUE(holds(error_of([&] { a.tell(); }), "wire process"));
}

TEST_F(WireServiceTest, FailureOfTheGpuIsToldToAllAndEndsTheService) {
  HostWire wire;
  std::atomic<int> losses{0};
  std::vector<std::unique_ptr<WiredRank>> ranks;
  for (int32_t r = 0; r < 2; ++r) {
    WireLinkConfig config = link_config(wire, r, 2);
    config.on_lost = [&](const WireFailure& failure) {
      EXPECT_TRUE(holds(failure.text, "planted trouble")) << failure.text;
      ++losses;
    };
    ranks.push_back(std::make_unique<WiredRank>(config));
  }
  ranks[0]->start();
  wire.log.has_trouble = true;
  const SteadyTime limit = deadline_in(20s);
  while (losses < 2 && steady_now() < limit) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(losses, 2);
  EXPECT_TRUE(holds(wire.end(), "planted trouble"));
}

// A rank that leaves within the time of grace is not told of the end.
TEST_F(WireServiceTest, LinkThatIsClosedTellsNoLoss) {
  expect_given_time(50ms, [this](std::chrono::milliseconds) {
    auto wire = std::make_unique<HostWire>();
    std::atomic<int> losses{0};
    WireLinkConfig config = link_config(*wire, 0, 1);
    config.on_lost = [&](const WireFailure&) { ++losses; };
    {
      const WiredRank a(config);
      wire->end();
      std::this_thread::sleep_for(50ms);
    }
    return losses == 0 ? "" : "the link told a loss";
  });
}

TEST_F(WireServiceTest, SocketThatIsTakenIsRefused) {
  HostWire wire;
  EXPECT_TRUE(
      holds(error_of([&] { WireService second({.socket = wire.socket(), .secret = "", .version = "", .tools = {}}); }),
            "taken"));
  WiredRank a(wire, 0, 1);
  a.start();
}

}  // namespace
}  // namespace tilewire

// The RC transport on a network that loses packets, dies or lies: data is right or the error has a name, and the next
// connection works. Runs in the guest, where a test may do that to the network.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "conformance/pattern.h"
#include "guest_wire.h"
#include "memory/forked_child.h"
#include "transport/error_text.h"
#include "transport/rc/address.h"
#include "transport/rc/rc_port.h"
#include "transport/rc/rc_transport.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Devices differ in what they say first when a port is down; rxe has no route then.
bool is_path_loss(int32_t status) {
  return status == verbs::abi::kWcRetryExcErr || status == verbs::abi::kWcWrFlushErr ||
         status == verbs::abi::kWcLocQpOpErr;
}

class RcWire : public ::testing::Test {
 protected:
  RcWire() {
    options_.timeout = 14;  // 67 ms
    options_.retries = 6;
  }

  std::unique_ptr<Transport> make(const TransportContext& context) const {
    RcOptions own = options_;
    own.device = guest_device(context.rank.value);
    if (context.rank == Rank{0} && mtu_of_rank_0_ > 0) own.mtu_bytes = mtu_of_rank_0_;
    const verbs::Verbs& verbs = verbs::load_verbs(own.library);
    return make_rc_port_transport(context, own, verbs, open_port(verbs, rc_port_wish(own), context));
  }
  TestNetwork network(int32_t ranks = 2) const {
    return TestNetwork(ranks, [this](const TransportContext& context) { return make(context); });
  }

  RcOptions options_;
  int mtu_of_rank_0_ = 0;
};

// Chunks enough that a fault comes before the last one however slow the shell is that plants it.
constexpr uint32_t kEndless = 100'000;

// What rank 0 sends and rank 1 sees of `count` chunks with immediates; all have to come, once, after their data.
struct Stream {
  TestNetwork& net;
  uint64_t bytes = 64 << 10;
  uint32_t count = 30;
  uint32_t posted = 0, completed = 0, arrived = 0;
  std::optional<Event> failure{};
  size_t polls_of_receiver = 1;

  uint64_t half(Epoch e) const { return static_cast<uint64_t>(net.layout().half_offset(e)); }
  uint64_t slot(uint32_t number) const { return number % 100 * bytes; }
  WriteRequest request(uint32_t number) const {
    return {.kind = RequestKind::write_with_immediate,
            .peer = Rank{1},
            .src_offset = half(0) + slot(number),
            .dst_offset = half(1) + slot(number),
            .bytes = bytes,
            .immediate = number,
            .id = number};
  }
  void post_more() {
    if (posted == count || posted >= arrived + 50) return;
    fill_pattern(net.arena(0) + half(0) + slot(posted), bytes, posted);
    const WriteRequest next = request(posted);
    posted += static_cast<uint32_t>(net.transport(0).post({&next, 1}));
  }
  void take(int32_t rank) {
    std::array<Event, 16> events;
    const size_t n = net.transport(rank).poll(events);
    for (const Event& event : std::span(events).first(n)) {
      if (event.kind == EventKind::failed && !failure) failure = event;
      if (event.kind == EventKind::completed) ++completed;
      if (event.kind != EventKind::arrived) continue;
      EXPECT_EQ(event.immediate, arrived);
      EXPECT_EQ(find_wrong_byte(net.arena(1) + half(1) + slot(arrived), bytes, arrived), std::nullopt);
      ++arrived;
    }
  }
  bool step() {
    post_more();
    take(0);
    if (polls_of_receiver > 0) take(1);
    return failure.has_value() || (completed == count && arrived == count);
  }
};

TEST_F(RcWire, LostPacketsLoseNoData) {
  TestNetwork net = network();
  const WireFault fault("loss 1%");
  for (int round = 0; round < 20 && fault.dropped() == 0; ++round) {
    Stream stream{net};
    ASSERT_TRUE(step_until([&] { return stream.step(); }));
    ASSERT_FALSE(stream.failure) << net.transport(0).describe_status(stream.failure->status);
    EXPECT_EQ(stream.arrived, stream.count);
  }
  EXPECT_GT(fault.dropped(), 0);
}

TEST_F(RcWire, ANetworkThatIsGoneForAMomentIsSurvived) {
  options_.timeout = 16;  // 0.27 s
  TestNetwork net = network();
  Stream stream{net, 64 << 10, kEndless};
  EXPECT_TRUE(step_until([&] { return stream.step() || stream.arrived > 5; }));
  uint32_t before = 0;
  {
    const WireFault fault("loss 100%");
    auto last = Clock::now();
    EXPECT_TRUE(step_until([&] {
      stream.step();
      if (std::exchange(before, stream.arrived) != stream.arrived) last = Clock::now();
      return Clock::now() - last > 200ms;
    })) << "chunks went on coming";
    EXPECT_LT(stream.arrived, stream.posted) << "nothing was under way";
  }
  // More than were under way.
  EXPECT_TRUE(step_until([&] { return stream.step() || stream.arrived > before + 100; }));
  EXPECT_FALSE(stream.failure);
  EXPECT_GT(stream.arrived, before + 100);
}

TEST_F(RcWire, ALostPathIsReportedWithItsPeerInTime) {
  options_.retries = 2;
  TestNetwork net = network();
  Stream stream{net, 64 << 10, kEndless};
  EXPECT_TRUE(step_until([&] { return stream.step() || stream.arrived > 5; }));
  const WireFault fault("loss 100%");
  const auto begin = Clock::now();
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  ASSERT_TRUE(stream.failure);
  EXPECT_LT(Clock::now() - begin, 5s);
  EXPECT_EQ(stream.failure->peer, Rank{1});
  EXPECT_EQ(stream.failure->status, verbs::abi::kWcRetryExcErr);
  const std::string text = net.transport(0).describe_status(stream.failure->status);
  EXPECT_NE(text.find("the peer or the path to it does not answer"), std::string::npos) << text;
  EXPECT_NE(text.find("port rxe0:1 is active"), std::string::npos) << text;
}

TEST_F(RcWire, APortThatGoesDownIsNamedAndTheNextConnectionWorks) {
  options_.retries = 2;
  {
    TestNetwork net = network();
    Stream stream{net, 64 << 10, kEndless};
    EXPECT_TRUE(step_until([&] { return stream.step() || stream.arrived > 5; }));
    const PortDown down(0);
    EXPECT_TRUE(step_until([&] { return stream.step(); }));
    ASSERT_TRUE(stream.failure);
    EXPECT_TRUE(is_path_loss(stream.failure->status)) << stream.failure->status;
    const std::string text = net.transport(0).describe_status(stream.failure->status);
    EXPECT_NE(text.find("port rxe0:1 is down"), std::string::npos) << text;
    RcOptions on_it = options_;
    on_it.device = "rxe0";
    const std::string why = why_no_rc_port(on_it);
    EXPECT_NE(why.find("rxe0:1: the port is down"), std::string::npos) << why;
  }
  TestNetwork net = network();
  Stream stream{net};
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  EXPECT_FALSE(stream.failure);
}

// Two transports joined by hand, with a lie in the address that rank 1 gives.
class LyingPeer {
 public:
  LyingPeer(const TestNetwork& like, const std::function<void(RcAddress&)>& lie,
            const std::function<std::unique_ptr<Transport>(const TransportContext&)>& make)
      : bytes_(static_cast<uint64_t>(like.layout().total_bytes())) {
    for (int32_t r = 0; r < 2; ++r) {
      arenas_[r].resize(bytes_);
      transports_[r] = make({.rank = Rank{r},
                             .ranks = 2,
                             .peers = {Rank{1 - r}},
                             .arena = arenas_[r].data(),
                             .arena_bytes = bytes_,
                             .local = r});
      transports_[r]->register_arena(0, bytes_);
    }
    std::vector<Bytes> addresses{transports_[0]->address(), transports_[1]->address()};
    RcAddress changed = RcAddress::unpack(Rank{1}, addresses[1]);
    lie(changed);
    addresses[1] = changed.pack();
    for (const auto& transport : transports_) transport->connect(addresses, 5s);
  }
  ~LyingPeer() {
    for (const auto& transport : transports_) transport->close();
  }

  Transport& at(int32_t rank) { return *transports_[rank]; }
  std::optional<Event> failure_at(int32_t rank) {
    std::optional<Event> failure;
    step_until(
        [&] {
          std::array<Event, 16> events;
          const size_t n = transports_[rank]->poll(events);
          for (const Event& event : std::span(events).first(n)) {
            if (event.kind == EventKind::failed && !failure) failure = event;
          }
          return failure.has_value();
        },
        10s);
    return failure;
  }

 private:
  uint64_t bytes_;
  std::array<std::vector<std::byte>, 2> arenas_;
  std::array<std::unique_ptr<Transport>, 2> transports_;
};

// Packets of 4096 bytes do not pass a switch that takes 1500; small ones do.
TEST_F(RcWire, APathThatTakesShorterPacketsThanItsEndsIsFoundBeforeTheFirstCall) {
  options_.retries = 1;
  const TestNetwork net = network();
  const auto first_error_of = [&] {
    LyingPeer pair(
        net, [](RcAddress&) {}, [this](const TransportContext& context) { return make(context); });
    std::thread other([&] { error_of([&] { pair.at(1).check_paths({2s}); }); });
    const Error error = error_of([&] {
      pair.at(0).check_paths({2s});
      throw Error(ErrorKind::closed, {.what = "all went well"});
    });
    other.join();
    return error;
  };
  run_shell("ip link set plug1 mtu 1500");
  const Error long_packets = first_error_of();
  mtu_of_rank_0_ = 1024;  // is that of both directions
  const Error short_packets = first_error_of();
  run_shell("ip link set plug1 mtu 4200");
  EXPECT_EQ(long_packets.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(long_packets, "the first write to rank 1 failed");
  EXPECT_SAYS(long_packets, "and their MTU");
  EXPECT_EQ(short_packets.kind(), ErrorKind::closed) << short_packets.what();
}

TEST_F(RcWire, AWrongKeyIsRefusedAndBothSidesSaySo) {
  const TestNetwork net = network();
  LyingPeer pair(
      net, [](RcAddress& address) { address.keys[0].key ^= 0x5a5a00; },
      [this](const TransportContext& context) { return make(context); });
  const WriteRequest request{.peer = Rank{1}, .bytes = 4096, .id = 7};
  ASSERT_EQ(pair.at(0).post({&request, 1}), 1u);
  const auto sender = pair.failure_at(0);
  ASSERT_TRUE(sender);
  EXPECT_EQ(sender->status, verbs::abi::kWcRemAccessErr);
  EXPECT_EQ(sender->id, 7u);
  EXPECT_EQ(sender->peer, Rank{1});
  EXPECT_NE(pair.at(0).describe_status(sender->status).find("refused the key"), std::string::npos);
  const auto receiver = pair.failure_at(1);
  ASSERT_TRUE(receiver);
  EXPECT_EQ(receiver->peer, Rank{0});
}

TEST_F(RcWire, AReceiverWithFewerEntriesThanItSaidIsReported) {
  options_.rnr_retries = 1;
  options_.receive_entries = 16;
  const TestNetwork net = network();
  LyingPeer pair(
      net, [](RcAddress& address) { address.receive_entries = 64; },
      [this](const TransportContext& context) { return make(context); });
  std::vector<WriteRequest> requests(20, {.kind = RequestKind::write_with_immediate, .peer = Rank{1}});
  ASSERT_EQ(pair.at(0).post(requests), requests.size());
  const auto failure = pair.failure_at(0);  // nobody polls rank 1
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status, verbs::abi::kWcRnrRetryExcErr);
  EXPECT_NE(pair.at(0).describe_status(failure->status).find("takes no more immediates"), std::string::npos);
}

TEST_F(RcWire, AReceiverThatDoesNotLookHoldsItsSenderBackAndBreaksNothing) {
  options_.rnr_retries = 1;  // running into it would be the end
  options_.receive_entries = 16;
  TestNetwork net = network();
  Stream stream{net, 64};
  stream.polls_of_receiver = 0;
  const auto end = Clock::now() + 300ms;
  while (Clock::now() < end) EXPECT_FALSE(stream.step());
  EXPECT_GE(stream.posted, 12u);
  EXPECT_LE(stream.posted, 16u) << "the receiver has 16 entries";
  stream.polls_of_receiver = 1;
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  EXPECT_FALSE(stream.failure);
}

// It has sent all it had to: what it would still be told concerns no request, and who knows that it has left lets it be.
TEST_F(RcWire, APeerThatHasLeftAfterItsLastWordsFailsAReportAloneOfWhoStillTakesThem) {
  options_.retries = 1;
  options_.receive_entries = 16;
  TestNetwork net = network();
  const std::vector<WriteRequest> words(12, {.kind = RequestKind::write_with_immediate, .peer = Rank{0}});
  ASSERT_EQ(net.transport(1).post(words), words.size());
  size_t completed = 0;
  std::array<Event, 16> events;
  ASSERT_TRUE(step_until([&] { return (completed += net.transport(1).poll(events)) == words.size(); }));
  net.transport(1).close();
  size_t arrived = 0, reports = 0;
  EXPECT_TRUE(step_until([&] {
    const size_t n = net.transport(0).poll(events);
    for (const Event& event : std::span(events).first(n)) {
      ++(event.kind == EventKind::own_failed ? reports : arrived);
      if (event.kind == EventKind::arrived) continue;
      EXPECT_EQ(event.kind, EventKind::own_failed);
      EXPECT_EQ(event.peer, Rank{1});
      EXPECT_EQ(event.status, verbs::abi::kWcRetryExcErr);
    }
    return arrived == words.size() && reports > 0;
  }));
  EXPECT_EQ(reports, 1u);
}

TEST_F(RcWire, LittleLockedMemoryIsNamedWithTheLimit) {
  ForkedChild child([this] {
    const rlimit limit{64 << 10, 64 << 10};
    // Root may lock what it likes.
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setgid(65534) != 0 || setuid(65534) != 0) return 1;
    try {
      network();
    } catch (const Error& error) {
      const std::string text = error.what();
      fprintf(stderr, "%s\n", text.c_str());
      const bool is_named = text.find("locked memory (ulimit -l): 65536 bytes") != std::string::npos;
      return error.kind() == ErrorKind::resource && is_named ? 0 : 2;
    }
    return 3;
  });
  EXPECT_EQ(child.wait(), 0) << "1: no lower limit, 2: another error, 3: no error";
}

TEST_F(RcWire, QueuesOfAnyLengthWrapManyTimesWithoutInlineToo) {
  for (const uint32_t inline_bytes : {0u, 16u}) {
    options_.send_entries = options_.receive_entries = 17;
    options_.inline_bytes = inline_bytes;
    TestNetwork net = network();
    constexpr uint64_t kRounds = 3000;
    uint64_t posted = 0, completed = 0, arrived = 0;
    const auto word = static_cast<uint64_t>(net.layout().word_offset(2));
    EXPECT_TRUE(step_until([&] {
      std::vector<WriteRequest> batch;
      for (uint64_t i = posted; i < std::min(posted + 9, 2 * kRounds); ++i) {
        if (i % 2 == 0) {
          batch.push_back({.kind = RequestKind::write_value, .peer = Rank{1}, .dst_offset = word, .value = i / 2 + 1});
        } else {
          batch.push_back(
              {.kind = RequestKind::write_with_immediate, .peer = Rank{1}, .immediate = static_cast<uint32_t>(i / 2)});
        }
      }
      posted += net.transport(0).post(batch);
      std::array<Event, 32> events;
      for (size_t left = net.transport(0).poll(events); left > 0; --left) {
        EXPECT_EQ(events[left - 1].kind, EventKind::completed);
        ++completed;
      }
      const size_t n = net.transport(1).poll(events);
      for (const Event& event : std::span(events).first(n)) {
        EXPECT_EQ(event.immediate, arrived);
        // An immediate comes behind all that was written before it.
        EXPECT_GE(load_word(net.arena(1), net.layout(), 2), arrived + 1);
        ++arrived;
      }
      return completed == 2 * kRounds && arrived == kRounds;
    })) << inline_bytes
        << " bytes inline: " << posted << " posted, " << completed << " done, " << arrived << " here";
    EXPECT_EQ(load_word(net.arena(1), net.layout(), 2), kRounds);
  }
}

TEST_F(RcWire, ARequestLongerThanAMessageOrAcrossTwoKeysIsCut) {
  ArenaLayout layout = TestNetwork::default_layout(2);
  layout.half_stride_bytes = 16 << 20;
  TestNetwork net(layout, [this](const TransportContext& context) { return make(context); });
  const auto half0 = static_cast<uint64_t>(layout.half_offset(0));
  const auto half1 = static_cast<uint64_t>(layout.half_offset(1));
  // Longer than 8 MiB; from the first half's end into the second, where another key begins on both sides.
  constexpr uint64_t kLong = (8 << 20) + 4099, kAcross = 100'000;
  const uint64_t border = half1 - kAcross / 2;
  struct Case {
    uint64_t src, dst, bytes;
  };
  for (const Case& c : {Case{half0, half1, kLong}, Case{border, half0, kAcross}, Case{half0, border, kAcross}}) {
    fill_pattern(net.arena(0) + c.src, c.bytes, c.dst);
    const WriteRequest request{.kind = RequestKind::write_with_immediate,
                               .peer = Rank{1},
                               .src_offset = c.src,
                               .dst_offset = c.dst,
                               .bytes = c.bytes,
                               .immediate = 5};
    ASSERT_EQ(net.transport(0).post({&request, 1}), 1u);
    size_t completed = 0, arrived = 0;
    std::array<Event, 4> events;
    ASSERT_TRUE(step_until([&] {
      completed += net.transport(0).poll(events);
      const bool was_here = arrived > 0;
      arrived += net.transport(1).poll(events);
      if (arrived > 0 && !was_here) {
        EXPECT_EQ(find_wrong_byte(net.arena(1) + c.dst, c.bytes, c.dst), std::nullopt) << "the immediate came first";
      }
      return completed > 0 && arrived > 0;
    }));
    EXPECT_EQ(completed, 1u) << "the parts of a request complete as one";
    EXPECT_EQ(arrived, 1u);
    EXPECT_EQ(find_wrong_byte(net.arena(1) + c.dst, c.bytes, c.dst), std::nullopt) << c.bytes << " bytes";
  }
}

}  // namespace
}  // namespace tilewire

// What every transport must do, whatever it runs over. Skips what a transport's Caps do not promise.
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <random>

#include "conformance/pattern.h"
#include "conformance/variants.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

class Conformance : public ::testing::TestWithParam<TransportVariant> {
 protected:
  TestNetwork network(int32_t ranks) const { return TestNetwork(ranks, GetParam().make); }
};

WriteRequest write_request(Rank peer, uint64_t src, uint64_t dst, uint64_t bytes, uint64_t id) {
  return {.kind = RequestKind::write, .peer = peer, .src_offset = src, .dst_offset = dst, .bytes = bytes, .id = id};
}

// Drives one rank: posts a list, keeps what poll() reports.
class Driver {
 public:
  explicit Driver(Transport& transport) : transport_(transport) {}

  void add(const WriteRequest& request) { to_post_.push_back(request); }

  // One round that posts `most` at most; true when everything added is posted and completed.
  bool step(size_t most = SIZE_MAX) {
    const std::span left = std::span(std::as_const(to_post_)).subspan(posted_);
    posted_ += transport_.post(left.first(std::min(most, left.size())));
    if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
    std::array<Event, 16> events;
    const size_t n = transport_.poll(events);
    for (const Event& event : std::span(events).first(n)) take(event);
    return posted_ == to_post_.size() && completed_ >= posted_;
  }

  size_t arrivals() const { return arrivals_; }
  // Between post and poll of each round.
  void set_pause(std::chrono::nanoseconds pause) { pause_ = pause; }
  void set_on_arrival(std::function<void(const Event&)> f) { on_arrival_ = std::move(f); }

 private:
  void take(const Event& event) {
    ASSERT_NE(event.kind, EventKind::failed) << transport_.describe_status(event.status);
    if (event.kind == EventKind::completed) {
      ++completed_;
      return;
    }
    ++arrivals_;
    if (on_arrival_) on_arrival_(event);
  }

  Transport& transport_;
  std::vector<WriteRequest> to_post_;
  std::chrono::nanoseconds pause_{0};
  size_t posted_ = 0;
  size_t completed_ = 0;
  size_t arrivals_ = 0;
  std::function<void(const Event&)> on_arrival_;
};

TEST_P(Conformance, BytesAreRightAtAllSizesAndOffsets) {
  TestNetwork net = network(2);
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const auto half1 = static_cast<uint64_t>(net.layout().half_offset(1));
  uint64_t id = 1;
  for (const uint64_t bytes : {1, 2, 15, 16, 17, 4095, 4096, 65536 + 16, (1 << 20) + 1, 4 << 20}) {
    for (const uint64_t src : {0, 1, 16, 4095}) {
      for (const uint64_t dst : {0, 3, 4096}) {
        if (bytes > (1 << 20) && (src != 0 || dst == 4096)) continue;
        std::byte* target = net.arena(1) + half1 + dst;
        fill_pattern(net.arena(0) + half0 + src, bytes, id);
        std::memset(net.arena(1) + half1, 0xEE, dst + bytes + 64);
        Driver driver(net.transport(0));
        driver.add(write_request(Rank{1}, half0 + src, half1 + dst, bytes, id));
        ASSERT_TRUE(step_until([&] { return driver.step(); }));
        ASSERT_EQ(find_wrong_byte(target, bytes, id), std::nullopt) << bytes << " bytes from " << src << " to " << dst;
        for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(target[bytes + i], std::byte{0xEE}) << "wrote past the end";
        for (uint64_t i = 0; i < dst; ++i) ASSERT_EQ(target[i - dst], std::byte{0xEE}) << "wrote before the start";
        ++id;
      }
    }
  }
}

TEST_P(Conformance, ValueBehindDataIsSeenAfterIt) {
  TestNetwork net = network(2);
  const Caps& caps = net.transport(0).caps();
  if (!caps.ordered_writes || !caps.value_writes) GTEST_SKIP() << caps.name << " promises no order";
  constexpr uint64_t kRounds = 150;
  constexpr uint64_t kBytes = 16 << 10;
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const auto half1 = static_cast<uint64_t>(net.layout().half_offset(1));
  for (uint64_t i = 0; i < kRounds; ++i) fill_pattern(net.arena(0) + half0 + i * kBytes, kBytes, i);
  std::thread receiver([&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      ASSERT_TRUE(step_until([&] { return load_word(net.arena(1), net.layout(), 5) > i; }));
      ASSERT_EQ(find_wrong_byte(net.arena(1) + half1 + i * kBytes, kBytes, i), std::nullopt)
          << "word " << i + 1 << " was seen before its data";
    }
  });
  Driver driver(net.transport(0));
  for (uint64_t i = 0; i < kRounds; ++i) {
    driver.add(write_request(Rank{1}, half0 + i * kBytes, half1 + i * kBytes, kBytes, 2 * i));
    driver.add({.kind = RequestKind::write_value,
                .peer = Rank{1},
                .dst_offset = static_cast<uint64_t>(net.layout().word_offset(5)),
                .value = i + 1,
                .id = 2 * i + 1});
  }
  // A few at a time, with pauses, so that the receiver looks while data is under way.
  driver.set_pause(50us);
  EXPECT_TRUE(step_until([&] { return driver.step(6); }));
  receiver.join();
}

TEST_P(Conformance, CompletionMeansThatTheDataHasLanded) {
  TestNetwork net = network(2);
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const auto half1 = static_cast<uint64_t>(net.layout().half_offset(1));
  constexpr uint64_t kBytes = 4096;
  for (uint64_t round = 0; round < 40; ++round) {
    fill_pattern(net.arena(0) + half0, kBytes, round);
    Driver driver(net.transport(0));
    driver.add(write_request(Rank{1}, half0, half1, kBytes, round));
    ASSERT_TRUE(step_until([&] { return driver.step(); }));
    ASSERT_EQ(find_wrong_byte(net.arena(1) + half1, kBytes, round), std::nullopt);
  }
}

TEST_P(Conformance, ImmediateComesAfterItsDataAndFromItsSender) {
  TestNetwork net = network(3);
  if (!net.transport(0).caps().write_with_immediate) GTEST_SKIP() << "no immediates";
  constexpr uint32_t kRounds = 150;
  constexpr uint64_t kBytes = 8 << 10;
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const auto half1 = static_cast<uint64_t>(net.layout().half_offset(1));
  std::vector<std::thread> senders;
  for (int32_t r : {1, 2}) {
    senders.emplace_back([&net, r, half0, half1] {
      Driver driver(net.transport(r));
      for (uint32_t i = 0; i < kRounds; ++i) {
        const uint64_t at = (uint64_t{i} * 2 + static_cast<uint64_t>(r - 1)) * kBytes;
        fill_pattern(net.arena(r) + half0 + at, kBytes, i + static_cast<uint64_t>(r) * 1000);
        const bool is_empty = i % 5 == 4;
        driver.add({.kind = RequestKind::write_with_immediate,
                    .peer = Rank{0},
                    .src_offset = is_empty ? 0 : half0 + at,
                    .dst_offset = is_empty ? 0 : half1 + at,
                    .bytes = is_empty ? 0 : kBytes,
                    .immediate = i | (i == 7 ? 0x80000000u : 0),
                    .id = i});
      }
      EXPECT_TRUE(step_until([&] { return driver.step(); }));
    });
  }
  Driver receiver(net.transport(0));
  std::map<std::pair<int32_t, uint32_t>, int> seen;
  receiver.set_on_arrival([&](const Event& event) {
    const uint32_t i = event.immediate & 0x7FFFFFFFu;
    ++seen[{event.peer.value, i}];
    ASSERT_EQ(event.immediate != i, i == 7) << "the upper bits of an immediate are lost";
    if (i % 5 == 4) return;
    const uint64_t at = (uint64_t{i} * 2 + static_cast<uint64_t>(event.peer.value - 1)) * kBytes;
    ASSERT_EQ(find_wrong_byte(net.arena(0) + half1 + at, kBytes, i + static_cast<uint64_t>(event.peer.value) * 1000),
              std::nullopt)
        << "immediate " << i << " of rank " << event.peer.value << " came before its data";
  });
  EXPECT_TRUE(step_until([&] {
    receiver.step();
    return receiver.arrivals() >= 2 * kRounds;
  }));
  for (std::thread& sender : senders) sender.join();
  for (int i = 0; i < 100; ++i) receiver.step();
  EXPECT_EQ(receiver.arrivals(), 2 * kRounds);
  for (const auto& [key, count] : seen) EXPECT_EQ(count, 1) << "rank " << key.first << ", immediate " << key.second;
  EXPECT_EQ(seen.size(), 2 * kRounds);
}

TEST_P(Conformance, CompletionsComeExactlyOnceWithTheirPeer) {
  TestNetwork net = network(3);
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  constexpr uint64_t kRequests = 800;
  std::mt19937 random(3);
  std::vector<WriteRequest> requests;
  for (uint64_t id = 0; id < kRequests; ++id) {
    requests.push_back(write_request(Rank{1 + static_cast<int32_t>(random() % 2)}, half0, half0 + 64 * (id % 1000),
                                     1 + random() % 64, id * 0x100000001u));
  }
  std::map<uint64_t, Rank> expected;
  for (const WriteRequest& request : requests) expected[request.id] = request.peer;
  size_t posted = 0;
  size_t completed = 0;
  const auto step = [&] {
    const size_t batch = std::min<size_t>(requests.size() - posted, 1 + random() % 40);
    posted += net.transport(0).post(std::span(requests).subspan(posted, batch));
    std::array<Event, 7> events;
    const size_t n = net.transport(0).poll(std::span(events).first(1 + random() % 7));
    for (const Event& event : std::span(events).first(n)) {
      EXPECT_EQ(event.kind, EventKind::completed);
      const auto found = expected.find(event.id);
      if (found == expected.end()) {
        ADD_FAILURE() << "id " << event.id << " completed twice or was never sent";
        continue;
      }
      EXPECT_EQ(found->second, event.peer);
      expected.erase(found);
      ++completed;
    }
    return completed >= kRequests;
  };
  EXPECT_TRUE(step_until(step));
  for (int i = 0; i < 200; ++i) step();
  EXPECT_EQ(completed, kRequests);
}

TEST_P(Conformance, BackPressureTakesAPrefixAndLosesNothing) {
  TestNetwork net = network(2);
  const uint32_t depth = net.transport(0).caps().max_outstanding;
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const auto half1 = static_cast<uint64_t>(net.layout().half_offset(1));
  const uint64_t count = uint64_t{depth} * 4 + 3;
  constexpr uint64_t kBytes = 128;
  std::vector<WriteRequest> requests;
  for (uint64_t i = 0; i < count; ++i) {
    fill_pattern(net.arena(0) + half0 + i * kBytes, kBytes, i);
    requests.push_back(write_request(Rank{1}, half0 + i * kBytes, half1 + i * kBytes, kBytes, i));
  }
  // Without a poll nothing is known to complete, so no more than the depth can be taken.
  const size_t first = net.transport(0).post(requests);
  EXPECT_LE(first, depth);
  EXPECT_GT(first, 0u);
  EXPECT_EQ(net.transport(0).post(std::span(requests).subspan(first)), 0u) << "a full queue took more";
  size_t posted = first;
  size_t completed = 0;
  ASSERT_TRUE(step_until([&] {
    std::array<Event, 64> events;
    completed += net.transport(0).poll(events);
    posted += net.transport(0).post(std::span(requests).subspan(posted));
    return completed == count;
  }));
  for (uint64_t i = 0; i < count; ++i) {
    ASSERT_EQ(find_wrong_byte(net.arena(1) + half1 + i * kBytes, kBytes, i), std::nullopt) << "request " << i;
  }
}

TEST_P(Conformance, ManyPeersBothWaysAtOnce) {
  constexpr int32_t kRanks = 5;
  constexpr uint64_t kRounds = 20;
  constexpr uint64_t kBytes = 20'000;
  TestNetwork net = network(kRanks);
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const auto half1 = static_cast<uint64_t>(net.layout().half_offset(1));
  // The same place in the sender's half 0 (by receiver) and in the receiver's half 1 (by sender).
  const auto place = [](Rank other, uint64_t round) {
    return (static_cast<uint64_t>(other.value) * kRounds + round) * kBytes;
  };
  const auto seed = [](Rank from, Rank to, uint64_t round) {
    return (static_cast<uint64_t>(from.value) * kRanks + static_cast<uint64_t>(to.value)) * kRounds + round;
  };
  std::atomic<int> unfinished{kRanks};
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, me = Rank{r}] {
      Driver driver(net.transport(me.value));
      for (uint64_t i = 0; i < kRounds; ++i) {
        for (const Rank peer : net.peers(me)) {
          fill_pattern(net.arena(me.value) + half0 + place(peer, i), kBytes, seed(me, peer, i));
          driver.add(write_request(peer, half0 + place(peer, i), half1 + place(me, i), kBytes, seed(me, peer, i)));
        }
      }
      EXPECT_TRUE(step_until([&] { return driver.step(); }));
      unfinished.fetch_sub(1);
      // A rank that is done still has to move what others' requests need of it.
      EXPECT_TRUE(step_until([&] {
        driver.step();
        return unfinished.load() == 0;
      }));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int32_t r = 0; r < kRanks; ++r) {
    for (const Rank from : net.peers(Rank{r})) {
      for (uint64_t i = 0; i < kRounds; ++i) {
        EXPECT_EQ(find_wrong_byte(net.arena(r) + half1 + place(from, i), kBytes, seed(from, Rank{r}, i)), std::nullopt)
            << "round " << i << " from " << from.value << " to " << r;
      }
    }
  }
}

TEST_P(Conformance, CloseWithRequestsInFlightIsQuickAndCanBeRepeated) {
  TestNetwork net = network(3);
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  std::vector<WriteRequest> requests;
  for (uint64_t i = 0; i < 50; ++i) requests.push_back(write_request(Rank{1}, half0, half0, 1 << 20, i));
  EXPECT_GT(net.transport(0).post(requests), 0u);
  const auto begin = std::chrono::steady_clock::now();
  net.transport(0).close();
  net.transport(0).close();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  std::array<Event, 8> events;
  EXPECT_EQ(net.transport(0).post(requests), 0u);
  EXPECT_EQ(net.transport(0).poll(events), 0u);
  // The others go on.
  Driver driver(net.transport(1));
  driver.add(write_request(Rank{2}, half0, half0, 64, 1));
  EXPECT_TRUE(step_until([&] { return driver.step(); }));
}

TEST_P(Conformance, ClosesWithoutEverBeingUsed) {
  std::chrono::nanoseconds closing{0};
  for (int i = 0; i < 5; ++i) {
    TestNetwork net = network(2);
    const auto begin = std::chrono::steady_clock::now();
    for (const int32_t rank : {0, 1}) net.transport(rank).close();
    closing += std::chrono::steady_clock::now() - begin;
  }
  EXPECT_LT(closing, 5s);
}

TEST_P(Conformance, BadRangesAreRefusedByName) {
  TestNetwork net = network(2);
  const auto total = static_cast<uint64_t>(net.layout().total_bytes());
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const WriteRequest bad[] = {
      write_request(Rank{1}, total - 8, half0, 16, 1),
      write_request(Rank{1}, half0, total - 8, 16, 1),
      write_request(Rank{1}, UINT64_MAX - 7, half0, 16, 1),
      write_request(Rank{1}, half0, UINT64_MAX - 7, 16, 1),
      write_request(Rank{1}, half0, half0, UINT64_MAX, 1),
      write_request(Rank{1}, half0, half0, 0, 1),
      write_request(Rank{0}, half0, half0, 16, 1),
      write_request(Rank{7}, half0, half0, 16, 1),
      write_request(Rank{-1}, half0, half0, 16, 1),
      {.kind = RequestKind::write_value, .peer = Rank{1}, .dst_offset = total, .value = 1},
      {.kind = RequestKind::write_value, .peer = Rank{1}, .dst_offset = 4100, .value = 1},
  };
  for (size_t i = 0; i < std::size(bad); ++i) {
    try {
      net.transport(0).post({&bad[i], 1});
      ADD_FAILURE() << "case " << i << " was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid_argument) << e.what();
    }
  }
  const Caps& caps = net.transport(0).caps();
  if (!caps.write_with_immediate) {
    WriteRequest request = write_request(Rank{1}, half0, half0, 16, 1);
    request.kind = RequestKind::write_with_immediate;
    EXPECT_THROW(net.transport(0).post({&request, 1}), Error);
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Conformance, ::testing::ValuesIn(transport_variants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tilewire

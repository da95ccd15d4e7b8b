#include "transport/emulated/emulated_transport.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <thread>

#include "memory/wait.h"
#include "testing/given_time.h"
#include "transport/emulated/local_reach.h"
#include "transport/emulated/link_model.h"
#include "transport/emulated/receive_queue.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

TransportMaker maker(EmulatedOptions options) {
  return [options](const TransportContext& context) { return make_emulated_transport(context, options); };
}

// The order in which `requests` small writes land that were posted together.
std::vector<uint64_t> landing_order(const EmulatedOptions& options, uint64_t requests) {
  LinkModel model(options, Rank{0}, 2);
  const LinkModel::Time now{};
  std::vector<LinkModel::Time> landed;
  for (uint64_t i = 0; i < requests; ++i) landed.push_back(model.schedule({.peer = Rank{1}, .bytes = 64}, now).landed);
  std::vector<uint64_t> order(requests);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) { return landed[a] < landed[b]; });
  return order;
}

TEST(LinkModel, SameSeedSameOrderOtherSeedOtherOrder) {
  EmulatedOptions options{.personality = Personality::srd, .seed = 7};
  const std::vector<uint64_t> order = landing_order(options, 200);
  EXPECT_EQ(landing_order(options, 200), order);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end())) << "nothing was reordered";
  options.seed = 8;
  EXPECT_NE(landing_order(options, 200), order);
}

TEST(LinkModel, RcKeepsTheOrderOfLandingsAndCompletionsWhateverIsDelayed) {
  LinkModel model({.personality = Personality::rc, .latency = 5us, .control_delay = 10ms}, Rank{0}, 3);
  LinkModel::Time now{};
  std::vector<LinkModel::Times> last(3);
  for (int i = 0; i < 500; ++i) {
    const Rank peer{1 + i % 2};
    const bool control = i % 3 == 0;
    const auto times = model.schedule(
        {.kind = control ? RequestKind::write_value : RequestKind::write, .peer = peer, .bytes = control ? 0u : 64u},
        now);
    EXPECT_GE(times.landed, last[peer.value].landed);
    EXPECT_GE(times.completed, last[peer.value].completed);
    EXPECT_GE(times.landed, now + 5us);
    EXPECT_GE(times.completed, times.landed + 5us);
    last[peer.value] = times;
    now += 100us;
  }
}

TEST(LinkModel, ControlWordsAreDelayedAndDataIsNot) {
  LinkModel model({.personality = Personality::relaxed, .reorder = 0ns, .completion_delay = 0ns, .control_delay = 50ms},
                  Rank{0}, 2);
  std::chrono::nanoseconds longest{0};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(model.schedule({.peer = Rank{1}, .bytes = 64}, {}).landed, LinkModel::Time{});
    longest = std::max(
        longest, model.schedule({.kind = RequestKind::write_value, .peer = Rank{1}}, {}).landed - LinkModel::Time{});
  }
  EXPECT_GT(longest, 25ms);
  EXPECT_LT(longest, 50ms);
}

TEST(LinkModel, BandwidthIsSharedByAllPeers) {
  LinkModel model({.bandwidth_bytes_per_s = 1e9}, Rank{0}, 3);
  const LinkModel::Time start{};
  LinkModel::Time last{};
  for (int i = 0; i < 100; ++i) last = model.schedule({.peer = Rank{1 + i % 2}, .bytes = 100'000}, start).landed;
  EXPECT_EQ(last - start, 10ms);
  // Idle time is not saved up.
  last = model.schedule({.peer = Rank{1}, .bytes = 100'000}, start + 1s).landed;
  EXPECT_EQ(last - start, 1s + 100us);
}

TEST(ReceiveQueue, ManySendersLoseAndDoubleNothing) {
  const auto queue = ReceiveQueue::create(Rank{0}, 64);
  const auto again = ReceiveQueue::find(queue->number());
  ASSERT_EQ(again, queue);
  constexpr int kSenders = 4;
  constexpr uint32_t kMessages = 5000;
  std::vector<std::thread> senders;
  for (int s = 0; s < kSenders; ++s) {
    senders.emplace_back([&, s] {
      for (uint32_t i = 0; i < kMessages; ++i) {
        while (!again->push(Rank{s}, i)) std::this_thread::yield();
      }
    });
  }
  std::array<uint32_t, kSenders> next{};
  const bool done = step_until([&] {
    Rank from;
    uint32_t immediate = 0;
    while (queue->pop(from, immediate)) EXPECT_EQ(immediate, next.at(static_cast<size_t>(from.value))++);
    return std::all_of(next.begin(), next.end(), [](uint32_t n) { return n == kMessages; });
  });
  EXPECT_TRUE(done);
  for (std::thread& sender : senders) sender.join();
}

TEST(ReceiveQueue, IsForgottenWithItsOwner) {
  uint64_t number = 0;
  {
    const auto queue = ReceiveQueue::create(Rank{0}, 64);
    number = queue->number();
  }
  EXPECT_EQ(ReceiveQueue::find(number), nullptr);
}

TEST(ReceiveQueue, DescriptorOfAnotherSizeIsRefused) {
  const auto queue = ReceiveQueue::create(Rank{0}, 64);
  EXPECT_NO_THROW(ReceiveQueue::open(Rank{0}, 64, queue->fd()));
  EXPECT_THROW(ReceiveQueue::open(Rank{0}, 4096, queue->fd()), Error);
  EXPECT_THROW(ReceiveQueue::create(Rank{0}, 63), Error);
}

TEST(Emulated, RateLimitHolds) {
  TestNetwork net(2, maker({.bandwidth_bytes_per_s = 1e9}));
  const auto half = static_cast<uint64_t>(net.layout().half_offset(0));
  std::vector<WriteRequest> requests(20, {.peer = Rank{1}, .src_offset = half, .dst_offset = half, .bytes = 1 << 20});
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(net.transport(0).post(requests), requests.size());
  size_t completed = 0;
  EXPECT_TRUE(step_until([&] {
    std::array<Event, 8> events;
    completed += net.transport(0).poll(events);
    return completed == requests.size();
  }));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 20.97ms) << "20 MiB took less than at 1 GB/s";
}

TEST(Emulated, LatencyHoldsAndTheHintSaysHowLong) {
  expect_given_time(20ms, [](std::chrono::milliseconds limit) {
    TestNetwork net(2, maker({.latency = limit}));
    EXPECT_EQ(net.transport(0).idle_hint(), std::chrono::nanoseconds::max());
    const WriteRequest request{.kind = RequestKind::write_value,
                               .peer = Rank{1},
                               .dst_offset = static_cast<uint64_t>(net.layout().word_offset(3)),
                               .value = 9};
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(net.transport(0).post({&request, 1}), 1u);
    const std::chrono::nanoseconds hint = net.transport(0).idle_hint();
    std::array<Event, 8> events;
    EXPECT_TRUE(step_until([&] {
      net.transport(0).poll(events);
      return load_word(net.arena(1), net.layout(), 3) == 9;
    }));
    EXPECT_GE(std::chrono::steady_clock::now() - begin, limit);
    return hint > 1ms ? "" : "the hint was " + std::to_string(hint.count()) + " ns";
  });
}

TEST(Emulated, WordThatLandsWakesTheSleeperItIsFor) {
  TestNetwork net(2, maker({}));
  WaitOptions options{.spin = 0ns, .yields = 0, .max_sleep = 50s, .deadline = 50s};
  std::thread sleeper([&] {
    HostWaiter waiter(net.arena(1), options);
    const auto result = waiter.wait([&] { return has_reached(net.arena(1), net.layout(), 3, 1); },
                                    [] { return std::string("word 3"); });
    EXPECT_EQ(result, WaitResult::ready);
  });
  std::this_thread::sleep_for(50ms);
  const auto begin = std::chrono::steady_clock::now();
  const WriteRequest request{.kind = RequestKind::write_value,
                             .peer = Rank{1},
                             .dst_offset = static_cast<uint64_t>(net.layout().word_offset(3)),
                             .value = 1};
  net.transport(0).post({&request, 1});
  std::array<Event, 8> events;
  net.transport(0).poll(events);
  sleeper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 25s) << "nobody rang the bell";
}

TEST(Emulated, FullReceiveQueueHoldsImmediatesBackAndLosesNone) {
  TestNetwork net(2, maker({.personality = Personality::srd, .receive_entries = 4}));
  std::vector<WriteRequest> requests;
  for (uint32_t i = 0; i < 50; ++i) {
    requests.push_back({.kind = RequestKind::write_with_immediate, .peer = Rank{1}, .immediate = i, .id = i});
  }
  ASSERT_EQ(net.transport(0).post(requests), requests.size());
  std::array<Event, 64> events;
  size_t completed = 0;
  for (int i = 0; i < 200; ++i) {
    completed += net.transport(0).poll(events);
    std::this_thread::sleep_for(100us);
  }
  EXPECT_EQ(completed, 4u) << "more than the queue holds has landed";
  std::vector<int> seen(50);
  EXPECT_TRUE(step_until([&] {
    const size_t n = net.transport(1).poll(events);
    for (size_t i = 0; i < n; ++i) ++seen[events[i].immediate];
    completed += net.transport(0).poll(events);
    return completed == 50;
  }));
  const size_t n = net.transport(1).poll(events);
  for (size_t i = 0; i < n; ++i) ++seen[events[i].immediate];
  EXPECT_EQ(seen, std::vector<int>(50, 1));
}

TEST(Emulated, PeersOfAnotherPersonalityAreRefused) {
  int made = 0;
  std::string text;
  try {
    std::vector<std::unique_ptr<Transport>> transports;
    const ArenaLayout layout = TestNetwork::default_layout(2);
    ThreadArenaGroup memory({Node{0}, Node{1}}, {.rank = Rank{0}, .layout = layout});
    std::vector<std::vector<std::byte>> addresses;
    for (int32_t r = 0; r < 2; ++r) {
      TransportContext context{.rank = Rank{r}, .ranks = 2, .peers = {Rank{1 - r}}, .arena = memory.base(Rank{r})};
      context.arena_bytes = static_cast<uint64_t>(layout.total_bytes());
      context.local_reach =
          std::make_shared<LocalReach>(LocalReach{.arena_bases = {memory.base(Rank{0}), memory.base(Rank{1})}});
      transports.push_back(
          make_emulated_transport(context, {.personality = r == 0 ? Personality::rc : Personality::srd}));
      addresses.push_back(transports.back()->address());
      ++made;
    }
    transports[0]->connect(addresses, 1s);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::mismatch);
    text = e.what();
  }
  EXPECT_EQ(made, 2);
  EXPECT_NE(text.find("peer = 1"), std::string::npos) << text;
}

TEST(Emulated, NoWayToAPeersArenaIsNamed) {
  std::vector<std::byte> arena(4096);
  const TransportContext context{
      .rank = Rank{0}, .ranks = 2, .peers = {Rank{1}}, .arena = arena.data(), .arena_bytes = arena.size()};
  try {
    make_emulated_transport(context, {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("on one host"), std::string::npos) << e.what();
  }
}

TEST(EmulatedOptions, ComeFromOptions) {
  Options options;
  options.emulated_bandwidth_gbps = 80;
  options.emulated_latency_us = 2.5;
  options.emulated_personality = "srd";
  options.emulated_seed = 11;
  const EmulatedOptions emulated = emulated_options(options);
  EXPECT_EQ(emulated.bandwidth_bytes_per_s, 1e10);
  EXPECT_EQ(emulated.latency, 2500ns);
  EXPECT_EQ(emulated.personality, Personality::srd);
  EXPECT_EQ(emulated.seed, 11u);
  EXPECT_THROW(parse_personality("RC"), Error);
}

}  // namespace
}  // namespace tilewire

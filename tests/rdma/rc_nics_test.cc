// A rank with four NICs over soft-RoCE, of the eight devices of the guest: each carries its share, one that dies is named,
// and the next connection works.
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "conformance/pattern.h"
#include "guest_wire.h"
#include "transport/registry.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

constexpr int kNics = 4;
constexpr uint64_t kBytes = 16 << 10;

TestNetwork network_of_nics(const std::array<int, 2>& nics_of_rank = {kNics, kNics}) {
  return TestNetwork(2, [nics_of_rank](const TransportContext& context) {
    Options options;
    options.transport = "rc";
    options.rc_timeout = 14;
    options.rc_retries = 2;
    options.nics = nics_of_rank[static_cast<size_t>(context.rank.value)];
    options.rc_device = guest_devices_of_node(context.rank.value);
    return make_transport(options, context);
  });
}

// What rank 0 sends and rank 1 sees.
struct NicStream {
  TestNetwork& net;
  uint32_t count = 200;
  uint32_t posted = 0, completed = 0, arrived = 0;
  std::array<uint32_t, kNics> by_nic{};
  std::optional<Event> failure{};

  uint64_t slot(uint32_t number) const { return number % 200 * kBytes; }
  void post_more() {
    const auto from = static_cast<uint64_t>(net.layout().half_offset(0)) + slot(posted);
    if (posted == count || posted >= arrived + 50) return;
    fill_pattern(net.arena(0) + from, kBytes, posted);
    const WriteRequest next{.kind = RequestKind::write_with_immediate,
                            .peer = Rank{1},
                            .src_offset = from,
                            .dst_offset = static_cast<uint64_t>(net.layout().half_offset(1)) + slot(posted),
                            .bytes = kBytes,
                            .immediate = posted,
                            .id = posted};
    posted += static_cast<uint32_t>(net.transport(0).post({&next, 1}));
  }
  void take(int32_t rank) {
    std::array<Event, 16> events;
    const size_t n = net.transport(rank).poll(events);
    for (const Event& event : std::span(events).first(n)) {
      if (event.kind == EventKind::failed && !failure) failure = event;
      if (event.kind == EventKind::completed) ++completed;
      if (event.kind != EventKind::arrived) continue;
      // NICs overtake each other; each chunk is whole when its own immediate is here.
      const auto at = static_cast<uint64_t>(net.layout().half_offset(1)) + slot(event.immediate);
      EXPECT_EQ(find_wrong_byte(net.arena(1) + at, kBytes, event.immediate), std::nullopt);
      ++by_nic.at(event.nic);
      ++arrived;
    }
  }
  bool step() {
    post_more();
    take(0);
    take(1);
    return failure.has_value() || (completed == count && arrived == count);
  }
};

TEST(RcNics, EachCarriesItsShareAndEveryChunkIsWhole) {
  TestNetwork net = network_of_nics();
  NicStream stream{net};
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  EXPECT_FALSE(stream.failure);
  EXPECT_EQ(stream.by_nic, (std::array<uint32_t, kNics>{50, 50, 50, 50}));
}

TEST(RcNics, ARankWithFewerIsTheMeasureOfAll) {
  TestNetwork net = network_of_nics({4, 3});
  NicStream stream{net, 30};
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  EXPECT_EQ(stream.by_nic, (std::array<uint32_t, kNics>{10, 10, 10, 0}));
}

TEST(RcNics, ADeadOneIsNamedAndTheNextConnectionWorks) {
  {
    TestNetwork net = network_of_nics();
    NicStream stream{net, 2000};
    EXPECT_TRUE(step_until([&] { return stream.step() || stream.arrived > 20; }));
    const PortDown down(4);  // the third of rank 0
    EXPECT_TRUE(step_until([&] { return stream.step(); }));
    ASSERT_TRUE(stream.failure);
    const std::string text = net.transport(0).describe_failure(*stream.failure);
    EXPECT_NE(text.find("NIC 3 of 4, rxe4:1"), std::string::npos) << text;
    EXPECT_NE(text.find("port rxe4:1 is down"), std::string::npos) << text;
    for (const int other : {0, 2, 6}) {
      EXPECT_EQ(text.find(fmt::format("rxe{}", other)), std::string::npos) << text;
    }
  }
  TestNetwork net = network_of_nics();
  NicStream stream{net, 40};
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  EXPECT_FALSE(stream.failure);
}

}  // namespace
}  // namespace tilewire

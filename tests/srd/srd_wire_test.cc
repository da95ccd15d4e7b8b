// The SRD transport on a network that keeps no order, refuses requests and loses peers: data is right or the error has a
// name, and what has nothing to do with it goes on.
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <vector>

#include "conformance/pattern.h"
#include "srd/srd_fixture.h"
#include "transport/srd/status.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

INSTANTIATE_TEST_SUITE_P(Modes, SrdWire, ::testing::Values(SrdUnsolicited::on, SrdUnsolicited::off),
                         [](const auto& info) {
                           return info.param == SrdUnsolicited::on ? "Unsolicited" : "Receives";
                         });

// What rank 0 sends and rank 1 sees of `count` chunks with immediates, in any order.
struct Stream {
  static constexpr uint64_t kSlots = 100;

  TestNetwork& net;
  uint64_t bytes = 40'000;
  uint32_t count = 300;
  uint32_t posted = 0, newest = 0, overtaken = 0;
  Done completed{}, arrived{};
  std::vector<Event> failures{};
  bool receiver_looks = true;

  uint64_t half(Epoch e) const { return static_cast<uint64_t>(net.layout().half_offset(e)); }
  uint64_t slot(uint32_t number) const { return number % kSlots * bytes; }
  // A slot is written again when what was in it is done with.
  bool may_post(uint32_t number) const {
    return number < count && number < completed.first_missing() + kSlots && number < arrived.first_missing() + kSlots;
  }
  // Many at once, so that they are under way together however slow this thread is.
  void post_more() {
    constexpr uint32_t kAtOnce = 32;
    std::vector<WriteRequest> next;
    for (uint32_t number = posted; next.size() < kAtOnce && may_post(number); ++number) {
      fill_pattern(net.arena(0) + half(0) + slot(number), bytes, number);
      next.push_back({.kind = RequestKind::write_with_immediate,
                      .peer = Rank{1},
                      .src_offset = half(0) + slot(number),
                      .dst_offset = half(1) + slot(number),
                      .bytes = bytes,
                      .immediate = number,
                      .id = number});
    }
    if (next.size() < std::min(kAtOnce, count - posted)) return;
    posted += static_cast<uint32_t>(net.transport(0).post(next));
  }
  void take(int32_t rank) {
    std::array<Event, 16> events;
    const size_t n = net.transport(rank).poll(events);
    for (const Event& event : std::span(events).first(n)) {
      if (event.kind == EventKind::failed) fail(event);
      if (event.kind == EventKind::completed) completed.add(static_cast<uint32_t>(event.id));
      if (event.kind == EventKind::arrived) arrive(event.immediate);
    }
  }
  // It counts as done, and never arrives.
  void fail(const Event& event) {
    failures.push_back(event);
    EXPECT_TRUE(completed.add(static_cast<uint32_t>(event.id)));
    EXPECT_TRUE(arrived.add(static_cast<uint32_t>(event.id)));
  }
  void arrive(uint32_t number) {
    EXPECT_TRUE(arrived.add(number)) << number << " came twice";
    EXPECT_EQ(find_wrong_byte(net.arena(1) + half(1) + slot(number), bytes, number), std::nullopt)
        << number << " came before its data";
    overtaken += number < newest ? 1 : 0;
    newest = std::max(newest, number);
  }
  bool step() {
    post_more();
    take(0);
    if (receiver_looks) take(1);
    return completed.size() == count && arrived.size() == count;
  }
};

TEST_P(SrdWire, ImmediatesPassEachOtherAndEachComesAfterItsOwnData) {
  for (const char* setting : {"seed=1,packet_bytes=1000", "seed=2,window=64,held=30", "seed=3,held=0"}) {
    FakeVerbs::set(kAsBefore);
    FakeVerbs::set(setting);
    TestNetwork net = network();
    Stream stream{net};
    EXPECT_TRUE(step_until([&] { return stream.step(); })) << setting;
    EXPECT_GT(stream.overtaken, 20u) << setting << ": nothing came out of order";
    EXPECT_TRUE(stream.failures.empty());
  }
}

TEST_P(SrdWire, AQueueThatIsFullBelowItsDepthIsBackPressure) {
  const int64_t before = FakeVerbs::count("enomem");
  FakeVerbs::set("enomem_every=2");
  options_.send_entries = options_.receive_entries = 16;
  options_.channels = 2;
  TestNetwork net = network();
  Stream stream{net, 5000};
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  EXPECT_TRUE(stream.failures.empty());
  EXPECT_GT(FakeVerbs::count("enomem"), before + 20);
}

TEST_P(SrdWire, AFailedRequestIsThatRequestAloneWithItsPeerAndCode) {
  TestNetwork net = network();
  FakeVerbs::set("fail_nth=40,fail_code=8");
  Stream stream{net, 2000, 200};
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  ASSERT_EQ(stream.failures.size(), 1u);
  const Event& failure = stream.failures[0];
  EXPECT_EQ(failure.peer, Rank{1});
  EXPECT_EQ(srd_wc_status(failure.status), verbs::abi::kWcRemAbortErr);
  const std::string text = net.transport(0).describe_status(failure.status);
  EXPECT_NE(text.find("aborted error; EFA code 8; port efa0:1 is active"), std::string::npos) << text;
}

TEST_P(SrdWire, APeerThatDoesNotAnswerIsNamedWhileOthersGoOn) {
  TestNetwork net = network(3);
  FakeVerbs::set("mute=2,silent_ms=100");  // efa1, which is rank 1's
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  std::vector<WriteRequest> requests;
  for (uint64_t i = 0; i < 40; ++i) {
    requests.push_back(
        {.peer = Rank{i % 2 == 0 ? 1 : 2}, .src_offset = half0, .dst_offset = half0, .bytes = 64, .id = i});
  }
  ASSERT_EQ(net.transport(0).post(requests), requests.size());
  int completed = 0, failed = 0;
  EXPECT_TRUE(step_until([&] {
    std::array<Event, 16> events;
    const size_t n = net.transport(0).poll(events);
    for (const Event& event : std::span(events).first(n)) {
      const bool is_dead = event.peer == Rank{1};
      EXPECT_EQ(event.kind, is_dead ? EventKind::failed : EventKind::completed);
      ++(is_dead ? failed : completed);
      if (!is_dead) continue;
      EXPECT_EQ(srd_wc_status(event.status), verbs::abi::kWcRespTimeoutErr);
      const std::string text = net.transport(0).describe_status(event.status);
      EXPECT_NE(text.find("does not answer"), std::string::npos) << text;
    }
    return completed + failed == 40;
  }));
  EXPECT_EQ(failed, 20);
}

TEST_P(SrdWire, AReceiverThatDoesNotLookHoldsItsSenderBackAndBreaksNothing) {
  options_.receive_entries = 16;
  TestNetwork net = network();
  const int64_t not_ready = FakeVerbs::count("not_ready");
  Stream stream{net, 64};
  stream.receiver_looks = false;
  EXPECT_TRUE(step_until([&] { return stream.step() || stream.posted >= 12; })) << stream.posted;
  EXPECT_FALSE(step_until([&] { return stream.step(); }, 200ms));
  EXPECT_LE(stream.posted, 16u) << "sixteen may wait";
  stream.receiver_looks = true;
  EXPECT_TRUE(step_until([&] { return stream.step(); }));
  EXPECT_TRUE(stream.failures.empty());
  EXPECT_EQ(FakeVerbs::count("not_ready"), not_ready);
}

TEST_P(SrdWire, APeerThatHasClosedIsNamed) {
  TestNetwork net = network();
  net.transport(1).close();
  const auto half0 = static_cast<uint64_t>(net.layout().half_offset(0));
  const WriteRequest request{.peer = Rank{1}, .src_offset = half0, .dst_offset = half0, .bytes = 64, .id = 9};
  ASSERT_EQ(net.transport(0).post({&request, 1}), 1u);
  Event event;
  ASSERT_TRUE(step_until([&] { return net.transport(0).poll({&event, 1}) == 1; }));
  EXPECT_EQ(event.kind, EventKind::failed);
  EXPECT_EQ(event.id, 9u);
  EXPECT_EQ(srd_wc_status(event.status), verbs::abi::kWcRemInvRdReqErr);
}

// It has sent all it had to: what it would still be told concerns no request, and who knows that it has left lets it be.
TEST_P(SrdWire, APeerThatHasLeftAfterItsLastWordsFailsReportsAloneOfThoseWhoStillTakeThem) {
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
      EXPECT_EQ(srd_wc_status(event.status), verbs::abi::kWcRemInvRdReqErr);
    }
    return arrived == words.size() && reports > 0;
  }));
}

}  // namespace
}  // namespace tilewire

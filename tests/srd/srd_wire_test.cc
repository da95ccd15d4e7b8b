// The SRD transport on a network that keeps no order, refuses, loses peers or is lied to: data is right or the error has a
// name, and what has nothing to do with it goes on.
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <thread>

#include "conformance/pattern.h"
#include "fake_verbs/control.h"
#include "transport/srd/address.h"
#include "transport/srd/queue.h"
#include "transport/srd/srd_transport.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr char kAsBefore[] =
    "seed=1,window=16,held=8,packet_bytes=8192,enomem_every=0,fail_nth=0,mute=0,gone_ms=200,silent_ms=20000,"
    "max_rdma_bytes=1073741824";

class SrdWire : public ::testing::TestWithParam<SrdUnsolicited> {
 protected:
  SrdWire() {
    options_.verbs_library = options_.efa_library = FakeVerbs::library();
    options_.unsolicited = GetParam();
  }
  ~SrdWire() override {
    FakeVerbs::set(kAsBefore);
    EXPECT_EQ(FakeVerbs::held(), 0);
    EXPECT_EQ(FakeVerbs::count("overflows"), 0);
    EXPECT_EQ(FakeVerbs::count("refused"), refusals_);
  }

  std::unique_ptr<Transport> make(const TransportContext& context) const {
    const SrdLibraries libraries = load_srd_libraries(options_);
    return make_srd_port_transport(context, options_, libraries,
                                   open_port(*libraries.verbs, srd_port_wish(libraries, options_), context));
  }
  TestNetwork network(int32_t ranks = 2) const {
    return TestNetwork(ranks, [this](const TransportContext& context) { return make(context); });
  }

  SrdOptions options_;
  int64_t refusals_ = FakeVerbs::count("refused");  // as there should be at the end
};
INSTANTIATE_TEST_SUITE_P(Modes, SrdWire, ::testing::Values(SrdUnsolicited::on, SrdUnsolicited::off),
                         [](const auto& info) {
                           return info.param == SrdUnsolicited::on ? "Unsolicited" : "Receives";
                         });

// Numbers that are done, in any order: below first_missing() all are.
class Done {
 public:
  bool add(uint32_t number) {
    const bool is_new = done_.insert(number).second;
    while (done_.contains(missing_)) ++missing_;
    return is_new;
  }
  bool has(uint32_t number) const { return done_.contains(number); }
  uint32_t first_missing() const { return missing_; }
  size_t size() const { return done_.size(); }

 private:
  std::set<uint32_t> done_;
  uint32_t missing_ = 0;
};

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
  bool may_post() const {
    return posted < count && posted < completed.first_missing() + kSlots && posted < arrived.first_missing() + kSlots;
  }
  void post_more() {
    for (int i = 0; i < 8 && may_post(); ++i) {
      fill_pattern(net.arena(0) + half(0) + slot(posted), bytes, posted);
      const WriteRequest next{.kind = RequestKind::write_with_immediate,
                              .peer = Rank{1},
                              .src_offset = half(0) + slot(posted),
                              .dst_offset = half(1) + slot(posted),
                              .bytes = bytes,
                              .immediate = posted,
                              .id = posted};
      const size_t taken = net.transport(0).post({&next, 1});
      posted += static_cast<uint32_t>(taken);
      if (taken == 0) return;
    }
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
  EXPECT_FALSE(step_until([&] { return stream.step(); }, 200ms));
  EXPECT_GE(stream.posted, 12u);
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

// It has sent all it had to; what it would still be told is no news.
TEST_P(SrdWire, APeerThatHasLeftAfterItsLastWordsIsNoErrorOfThoseWhoStillTakeThem) {
  options_.receive_entries = 16;
  TestNetwork net = network();
  const std::vector<WriteRequest> words(12, {.kind = RequestKind::write_with_immediate, .peer = Rank{0}});
  ASSERT_EQ(net.transport(1).post(words), words.size());
  size_t completed = 0;
  std::array<Event, 16> events;
  ASSERT_TRUE(step_until([&] { return (completed += net.transport(1).poll(events)) == words.size(); }));
  net.transport(1).close();
  size_t arrived = 0;
  const auto step = [&] {
    const size_t n = net.transport(0).poll(events);
    for (const Event& event : std::span(events).first(n)) EXPECT_EQ(event.kind, EventKind::arrived);
    arrived += n;
    return false;
  };
  EXPECT_FALSE(step_until(step, 200ms));
  EXPECT_EQ(arrived, words.size());
}

// Two transports joined by hand: what rank 1 says of itself can be changed, and memory can be registered in parts.
class Pair {
 public:
  static constexpr uint64_t kPage = 4096;
  static constexpr uint64_t kPages = 64;

  explicit Pair(const std::function<std::unique_ptr<Transport>(const TransportContext&)>& make) {
    for (int32_t r = 0; r < 2; ++r) {
      arenas_[r].resize(kPages * kPage);
      transports_[r] = make({.rank = Rank{r},
                             .ranks = 2,
                             .peers = {Rank{1 - r}},
                             .arena = arenas_[r].data(),
                             .arena_bytes = arenas_[r].size(),
                             .local = r});
    }
  }
  ~Pair() {
    for (const auto& transport : transports_) transport->close();
  }

  void register_all(const std::vector<uint64_t>& pages_of_0, const std::vector<uint64_t>& pages_of_1) {
    for (const auto& [rank, parts] : {std::pair{0, pages_of_0}, std::pair{1, pages_of_1}}) {
      uint64_t at = 0;
      for (const uint64_t pages : parts) {
        transports_[rank]->register_arena(at * kPage, pages * kPage);
        at += pages;
      }
    }
  }
  void connect(const std::function<void(SrdAddress&)>& lie, bool both = true) {
    std::vector<Bytes> addresses{transports_[0]->address(), transports_[1]->address()};
    if (both) transports_[1]->connect(addresses, 5s);
    SrdAddress changed = SrdAddress::unpack(Rank{1}, addresses[1]);
    if (lie) lie(changed);
    addresses[1] = changed.pack();
    transports_[0]->connect(addresses, 5s);
  }

  Transport& at(int32_t rank) { return *transports_[rank]; }
  std::byte* arena(int32_t rank) { return arenas_[rank].data(); }
  // Of rank 0, whose requests have been posted; rank 1 is not looked at.
  std::optional<Event> next_event() {
    Event event;
    return step_until([&] { return at(0).poll({&event, 1}) == 1; }, 10s) ? std::optional(event) : std::nullopt;
  }

 private:
  std::array<std::vector<std::byte>, 2> arenas_;
  std::array<std::unique_ptr<Transport>, 2> transports_;
};

class SrdPair : public SrdWire {
 protected:
  Pair pair() const {
    return Pair([this](const TransportContext& context) { return make(context); });
  }
  // A request of rank 0 to a peer that is not what it says fails so.
  void expect_failure(verbs::abi::WcStatus status, const char* text, const std::function<void(SrdAddress&)>& lie,
                      bool both = true, size_t requests = 1) {
    Pair two = pair();
    two.register_all({Pair::kPages}, {Pair::kPages});
    two.connect(lie, both);
    const std::vector<WriteRequest> all(
        requests, {.kind = RequestKind::write_with_immediate, .peer = Rank{1}, .bytes = 64, .id = 7});
    ASSERT_EQ(two.at(0).post(all), requests);
    std::optional<Event> event;
    do {
      event = two.next_event();
      ASSERT_TRUE(event);
    } while (event->kind == EventKind::completed);
    EXPECT_EQ(event->peer, Rank{1});
    EXPECT_EQ(event->id, 7u);
    EXPECT_EQ(srd_wc_status(event->status), status) << two.at(0).describe_status(event->status);
    const std::string said = two.at(0).describe_status(event->status);
    EXPECT_NE(said.find(text), std::string::npos) << said;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, SrdPair, ::testing::Values(SrdUnsolicited::on, SrdUnsolicited::off),
                         [](const auto& info) {
                           return info.param == SrdUnsolicited::on ? "Unsolicited" : "Receives";
                         });

TEST_P(SrdPair, ATargetWithoutAnAddressHandleForItsSenderRefuses) {
  expect_failure(verbs::abi::kWcRemOpErr, "the peer does not know this device", {}, false);
}
TEST_P(SrdPair, AWrongKeyIsRefused) {
  expect_failure(verbs::abi::kWcRemAccessErr, "refused the key", [](SrdAddress& a) { a.keys[0].key ^= 0x5a5a00; });
}
TEST_P(SrdPair, AWrongQueuePairIsRefused) {
  expect_failure(verbs::abi::kWcRemInvRdReqErr, "no such queue pair", [](SrdAddress& a) { a.queues[0] ^= 0x5a5a00; });
}
TEST_P(SrdPair, AHostThatIsNotThereIsNamedInTime) {
  const auto begin = Clock::now();
  expect_failure(verbs::abi::kWcRespTimeoutErr, "does not answer", [](SrdAddress& a) { a.gid[9] ^= 0x5a; });
  EXPECT_LT(Clock::now() - begin, 10s);
}
TEST_P(SrdPair, AReceiverWithFewerEntriesThanItSaidIsReported) {
  if (GetParam() == SrdUnsolicited::on) GTEST_SKIP() << "has none";
  options_.receive_entries = 16;
  expect_failure(
      verbs::abi::kWcRnrRetryExcErr, "takes no more immediates", [](SrdAddress& a) { a.credits = 64; }, true, 20);
}

TEST_P(SrdPair, APostThatTheDeviceRefusesFailsItsRequestsByNameAndNoOthers) {
  Pair two = pair();
  two.register_all({Pair::kPages}, {Pair::kPages});
  two.connect({});
  FakeVerbs::set("max_rdma_bytes=32");
  const std::vector<WriteRequest> requests{{.peer = Rank{1}, .bytes = 16, .id = 4},
                                           {.peer = Rank{1}, .bytes = 64, .id = 5}};
  EXPECT_EQ(two.at(0).post(requests), 2u);
  for (const uint64_t id : {4, 5}) {
    const auto event = two.next_event();
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, EventKind::failed);
    EXPECT_EQ(event->id, id);
    EXPECT_EQ(event->peer, Rank{1});
  }
  EXPECT_EQ(two.at(0).post(std::span(requests).first(1)), 1u);
  const auto event = two.next_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::completed);
  ++refusals_;
}

TEST_P(SrdPair, AProbeWithWrongContentIsNoProof) {
  Pair two = pair();
  two.register_all({Pair::kPages}, {Pair::kPages});
  two.connect([](SrdAddress& address) { address.scratch += 64; });  // so that it comes into another's place
  std::thread other([&] { two.at(0).check_paths(10s); });
  try {
    two.at(1).check_paths(300ms);
    ADD_FAILURE() << "taken for right";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::deadline);
    EXPECT_NE(std::string(error.what()).find("probes came with wrong content"), std::string::npos) << error.what();
  }
  other.join();
}

// Every part of the arena has a key of its own on either side: chunks lie across up to three.
TEST_P(SrdPair, ARequestThatNeedsSeveralKeysIsAnnouncedWhenAllOfItIsThere) {
  for (const char* setting : {"seed=5,packet_bytes=512,held=20", "seed=6,enomem_every=2,held=20"}) {
    FakeVerbs::set(kAsBefore);
    FakeVerbs::set(setting);
    options_.send_entries = 16;
    Pair two = pair();
    two.register_all({3, 5, 24, 32}, {4, 2, 26, 32});
    two.connect({});
    uint32_t posted = 0;
    Done completed, arrived;
    constexpr uint32_t kRequests = 200;
    const auto place = [](uint32_t number) { return uint64_t{number % 8} * 32 * 1024 + number % 3; };
    constexpr uint64_t kBytes = 30'000;
    EXPECT_TRUE(step_until([&] {
      if (posted < kRequests && posted < arrived.first_missing() + 8 && posted < completed.first_missing() + 8) {
        fill_pattern(two.arena(0) + place(posted), kBytes, posted);
        std::memset(two.arena(1) + place(posted), 0xEE, kBytes);
        const WriteRequest request{.kind = RequestKind::write_with_immediate,
                                   .peer = Rank{1},
                                   .src_offset = place(posted),
                                   .dst_offset = place(posted),
                                   .bytes = kBytes,
                                   .immediate = posted,
                                   .id = posted};
        posted += static_cast<uint32_t>(two.at(0).post({&request, 1}));
      }
      std::array<Event, 4> events;
      size_t n = two.at(0).poll(events);
      for (const Event& event : std::span(events).first(n)) {
        EXPECT_EQ(event.kind, EventKind::completed);
        completed.add(static_cast<uint32_t>(event.id));
      }
      n = two.at(1).poll(events);
      for (const Event& event : std::span(events).first(n)) {
        EXPECT_EQ(find_wrong_byte(two.arena(1) + place(event.immediate), kBytes, event.immediate), std::nullopt)
            << setting << ": " << event.immediate << " was announced before all of it was there";
        EXPECT_TRUE(arrived.add(event.immediate));
      }
      return completed.size() == kRequests && arrived.size() == kRequests;
    })) << setting;
  }
}

TEST_P(SrdPair, ARequestOfSeveralPartsFailsOnceAndItsImmediateNeverComes) {
  FakeVerbs::set("fail_nth=2,fail_code=8,held=0");
  Pair two = pair();
  two.register_all({1, 63}, {2, 62});
  two.connect({});
  FakeVerbs::set("fail_nth=2");
  const WriteRequest request{
      .kind = RequestKind::write_with_immediate, .peer = Rank{1}, .bytes = 4 * Pair::kPage, .immediate = 1, .id = 5};
  ASSERT_EQ(two.at(0).post({&request, 1}), 1u);
  const auto event = two.next_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::failed);
  EXPECT_EQ(event->id, 5u);
  Event more;
  EXPECT_FALSE(step_until([&] { return two.at(0).poll({&more, 1}) + two.at(1).poll({&more, 1}) > 0; }, 100ms));
}

TEST_P(SrdPair, KeysOfLaterRangesAreToldOnceAndLearned) {
  Pair two = pair();
  two.register_all({1}, {1});
  two.connect({});
  EXPECT_TRUE(verbs::unpack_keys(two.at(1).new_keys()).empty());
  for (const int32_t r : {0, 1}) two.at(r).register_arena(Pair::kPage, Pair::kPage);
  const WriteRequest request{.peer = Rank{1}, .dst_offset = Pair::kPage, .bytes = 16};
  try {
    two.at(0).post({&request, 1});
    ADD_FAILURE() << "a key was made up";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the peer has registered no memory there"), std::string::npos);
  }
  const std::vector<Bytes> keys{verbs::pack_keys({}), two.at(1).new_keys()};
  two.at(0).learn_keys(keys);
  ASSERT_EQ(two.at(0).post({&request, 1}), 1u);
  const auto event = two.next_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::completed);
}

}  // namespace
}  // namespace tilewire

// The SRD transport between two ranks joined by hand: one says of itself what is not so, or has its memory in parts.
#include <tilewire/error.h>

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "conformance/pattern.h"
#include "srd/srd_fixture.h"
#include "testing/given_time.h"
#include "transport/error_text.h"
#include "transport/srd/address.h"
#include "transport/srd/status.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

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

TEST_P(SrdPair, WhatAQueuePairFailedByIsSaidAndNotThatTheRestIsFlushed) {
  FakeVerbs::set("fail_nth=3,fail_code=8,fatal=1,held=0");
  Pair two = pair();
  two.register_all({Pair::kPages}, {Pair::kPages});
  two.connect({});
  FakeVerbs::set("fail_nth=3");  // from now
  const std::vector<WriteRequest> requests(6, {.peer = Rank{1}, .bytes = 16});
  ASSERT_EQ(two.at(0).post(requests), requests.size());
  std::vector<Event> failures;
  for (size_t told = 0; told < requests.size(); ++told) {
    const auto event = two.next_event();
    ASSERT_TRUE(event);
    if (event->kind == EventKind::failed) failures.push_back(*event);
  }
  ASSERT_GE(failures.size(), 4u);
  EXPECT_EQ(srd_wc_status(failures[0].status), verbs::abi::kWcRemAbortErr);
  for (size_t i = 1; i < failures.size(); ++i) EXPECT_TRUE(is_flush(failures[i].status)) << i;
  if (GetParam() == SrdUnsolicited::on) return;  // has no receives
  EXPECT_SAYS(error_of([&] { two.next_event(); }), "the device has given up a receive");
}

TEST_P(SrdPair, WhileAPathIsTriedADeathThatIsToldEndsItAtOnce) {
  Pair two = pair();
  two.connect({});
  int looks = 0;
  const Error error = error_of([&] {
    two.at(0).check_paths({1h, [&] {
                             if (++looks == 3) throw Error(ErrorKind::peer_lost, {.what = "rank 1 is lost"});
                           }});
  });
  EXPECT_EQ(error.kind(), ErrorKind::peer_lost);
}

TEST_P(SrdPair, AProbeWithWrongContentIsNoProof) {
  expect_given_time(150ms, [&](std::chrono::milliseconds limit) {
    Pair two = pair();
    two.register_all({Pair::kPages}, {Pair::kPages});
    two.connect([](SrdAddress& address) { address.scratch += 64; });  // so that it comes into another's place
    std::string said = "taken for right";
    std::thread other([&] { two.at(0).check_paths({20s}); });
    try {
      two.at(1).check_paths({limit});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::deadline);
      said = error.what();
    }
    other.join();
    return said.find("probes came with wrong content") != std::string::npos ? "" : said;
  });
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

// It would be refused for ever, as by a queue that is full.
TEST_P(SrdPair, ARequestAcrossMoreRangesThanTheQueueHasEntriesIsRefusedByNameAndOneAcrossAsManyGoes) {
  options_.send_entries = 16;
  Pair two = pair();
  two.register_all(std::vector<uint64_t>(32, 1), {Pair::kPages});
  two.connect({});
  const WriteRequest never{.kind = RequestKind::write_with_immediate,
                           .peer = Rank{1},
                           .src_offset = Pair::kPage,
                           .bytes = 20 * Pair::kPage,
                           .id = 7};
  const Error error = error_of([&] { two.at(0).post({&never, 1}); });
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_SAYS(error, "request 7 to rank 1: src_offset = 4096, dst_offset = 0, bytes = 81920, parts = 20");
  EXPECT_SAYS(error, "srd_send_entries = 16");
  WriteRequest fits = never;
  fits.bytes = 16 * Pair::kPage;
  ASSERT_EQ(two.at(0).post({&fits, 1}), 1u);
  const auto event = two.next_event();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::completed);
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

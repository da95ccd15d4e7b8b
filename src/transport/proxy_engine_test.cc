#include "transport/proxy_engine.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "memory/words.h"
#include "transport/manual_transport.h"

namespace tilewire {
namespace {

constexpr Rank kPeer{1};
constexpr Rank kOther{3};

Caps ordered_caps(uint32_t depth = 64) {
  return {.name = "ordered", .ordered_writes = true, .value_writes = true, .max_outstanding = depth};
}
Caps counted_caps(uint32_t depth = 64) {
  return {.name = "counted", .write_with_immediate = true, .max_outstanding = depth};
}
Caps completion_caps(uint32_t depth = 64) {
  return {.name = "after completion", .value_writes = true, .max_outstanding = depth};
}

class CollectingSink final : public ArrivalSink {
 public:
  bool deliver(const Arrival& arrival) override {
    if (room == 0) return false;
    --room;
    arrivals.push_back(arrival);
    return true;
  }
  std::vector<Arrival> arrivals;
  size_t room = SIZE_MAX;
};

constexpr FlagLayout kFlags{.ranks = 4, .max_chunks = 16};
constexpr auto kFlagWords = static_cast<uint32_t>(kFlags.words());

// Rank 0 of four, with two rings, over a transport that the test drives.
struct Rig {
  explicit Rig(Caps caps, Epoch first_epoch = 1, uint32_t ring_entries = 256,
               const std::function<void(ProxyConfig&)>& change = {})
      : layout{.flags = kFlags, .half_stride_bytes = 1 << 16, .user_stride_bytes = 1 << 16},
        arena(static_cast<size_t>(layout.total_bytes())),
        transport(std::move(caps)),
        counters(2) {
    committed.half = 32768;
    committed.user = 16384;
    ProxyConfig config{
        .rank = Rank{0}, .layout = layout, .control_page = arena.data(), .peers = {kPeer, kOther}, .rings = {}};
    config.first_epoch = first_epoch;
    config.arrivals = &sink;
    for (int i = 0; i < 2; ++i) {
      rings.push_back(std::make_unique<CommandRing>(ring_entries));
      producers.emplace_back(rings.back()->memory());
      config.rings.push_back(rings.back()->memory());
    }
    if (change) change(config);
    engine = std::make_unique<ProxyEngine>(config, transport, committed, counters);
  }

  void post(const Command& command, int ring = 0) { ASSERT_TRUE(producers[ring].try_post(command)); }
  void end_call(Epoch e) {
    for (int ring = 0; ring < 2; ++ring) post({.kind = CommandKind::call_end, .peer = {}, .epoch = e}, ring);
  }
  void steps(int n = 4) {
    for (int i = 0; i < n; ++i) engine->step();
  }
  Epoch sent() const { return load_sent(arena.data()); }
  ProxyFault fault() {
    try {
      steps();
    } catch (const ProxyFaultError& e) {
      return e.fault;
    }
    ADD_FAILURE() << "no fault was raised";
    return {};
  }

  ArenaLayout layout;
  std::vector<std::byte> arena;
  ManualTransport transport;
  CommittedBytes committed;
  ProxyCounters counters;
  CollectingSink sink;
  std::vector<std::unique_ptr<CommandRing>> rings;
  std::vector<CommandProducer> producers;
  std::unique_ptr<ProxyEngine> engine;
};

Command write_command(uint32_t word, uint32_t units = 4, uint64_t src = 1, uint64_t dst = 2, Rank peer = kPeer) {
  return {.kind = CommandKind::write, .peer = peer, .word = word, .units = units, .src_unit = src, .dst_unit = dst};
}
Command signal_command(uint32_t word, Rank peer = kPeer) {
  return {.kind = CommandKind::signal, .peer = peer, .word = word};
}

TEST(ProxyEngine, OrderedFlagGoesRightBehindItsData) {
  Rig rig(ordered_caps());
  rig.post(write_command(9));
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 2u);
  const WriteRequest& data = rig.transport.posted[0];
  const WriteRequest& flag = rig.transport.posted[1];
  EXPECT_EQ(data.kind, RequestKind::write);
  EXPECT_EQ(data.src_offset, rig.layout.half_offset(1) + 16u);
  EXPECT_EQ(data.dst_offset, rig.layout.half_offset(1) + 32u);
  EXPECT_EQ(data.bytes, 64u);
  EXPECT_EQ(flag.kind, RequestKind::write_value);
  EXPECT_EQ(flag.dst_offset, static_cast<uint64_t>(rig.layout.word_offset(9)));
  EXPECT_EQ(flag.value, 1u);
  EXPECT_EQ(flag.peer, kPeer);
}

TEST(ProxyEngine, CountedDataCarriesWordAndEpoch) {
  const Epoch first = (Epoch{1} << 32) - 3;
  Rig rig(counted_caps(), first);
  rig.post(write_command(9));
  rig.post(signal_command(3, kOther));
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 2u);
  EXPECT_EQ(rig.transport.posted[0].kind, RequestKind::write_with_immediate);
  EXPECT_EQ(rig.transport.posted[0].bytes, 64u);
  EXPECT_EQ(rig.transport.posted[0].immediate, pack(Immediate{9, first}));
  EXPECT_EQ(rig.transport.posted[1].bytes, 0u);
  EXPECT_EQ(rig.transport.posted[1].peer, kOther);
}

TEST(ProxyEngine, FlagWaitsForTheCompletionWhereNothingElsePromisesOrder) {
  Rig rig(completion_caps());
  rig.post(write_command(9));
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 1u) << "the flag was posted before its data had landed";
  EXPECT_EQ(rig.transport.posted[0].kind, RequestKind::write);
  rig.transport.complete(0);
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 2u);
  EXPECT_EQ(rig.transport.posted[1].kind, RequestKind::write_value);
  EXPECT_EQ(rig.transport.posted[1].value, 1u);
}

TEST(ProxyEngine, WordIsNotRewrittenBeforeItsPreviousWriteLanded) {
  Rig rig(completion_caps());
  rig.post(write_command(9));
  rig.end_call(1);
  rig.post(write_command(9));    // call 2, same word
  rig.post(signal_command(10));  // another word is not held up
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 2u);
  EXPECT_EQ(rig.transport.posted[1].dst_offset, static_cast<uint64_t>(rig.layout.word_offset(10)));
  rig.transport.complete(0);
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 3u);
  EXPECT_EQ(rig.transport.posted[2].value, 1u);
  rig.transport.complete(2);
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 4u);
  EXPECT_EQ(rig.transport.posted[3].kind, RequestKind::write);
  rig.transport.complete(3);
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 5u);
  EXPECT_EQ(rig.transport.posted[4].value, 2u);
}

TEST(ProxyEngine, DataFollowsTheEpochOfItsOwnRing) {
  Rig rig(ordered_caps());
  rig.post({.kind = CommandKind::call_end, .peer = {}, .epoch = 1}, 0);
  rig.post(write_command(5), 0);  // ring 0 is in call 2
  rig.post(write_command(6), 1);  // ring 1 still in call 1
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 4u);
  EXPECT_EQ(rig.transport.posted[0].dst_offset, rig.layout.half_offset(2) + 32u);
  EXPECT_EQ(rig.transport.posted[1].value, 2u);
  EXPECT_EQ(rig.transport.posted[2].dst_offset, rig.layout.half_offset(1) + 32u);
  EXPECT_EQ(rig.transport.posted[3].value, 1u);
}

TEST(ProxyEngine, UserAreaIsTheSourceWhenAsked) {
  Rig rig(ordered_caps());
  Command command = write_command(5, 1024, 0, 0);
  command.from_user = true;
  rig.post(command);
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 2u);
  EXPECT_EQ(rig.transport.posted[0].src_offset, static_cast<uint64_t>(rig.layout.user_offset()));
}

TEST(ProxyEngine, SentWaitsForEveryRingAndEveryCompletion) {
  for (const Caps& caps : {ordered_caps(), counted_caps(), completion_caps()}) {
    SCOPED_TRACE(caps.name);
    Rig rig(caps);
    rig.post(write_command(5), 0);
    rig.post({.kind = CommandKind::call_end, .peer = {}, .epoch = 1}, 0);
    rig.steps();
    for (size_t i = 0; i < rig.transport.posted.size(); ++i) {
      rig.transport.complete(i);
      rig.steps();
    }
    EXPECT_EQ(rig.sent(), 0u) << "ring 1 has not ended the call";
    rig.post(signal_command(6), 1);
    rig.post({.kind = CommandKind::call_end, .peer = {}, .epoch = 1}, 1);
    rig.steps();
    EXPECT_EQ(rig.sent(), 0u) << "a signal is still in flight";
    rig.transport.complete(rig.transport.posted.size() - 1);
    rig.steps();
    EXPECT_EQ(rig.sent(), 1u);
  }
}

TEST(ProxyEngine, SentOfALaterCallWaitsForAnEarlierOne) {
  Rig rig(ordered_caps());
  rig.post(signal_command(5));
  rig.end_call(1);
  rig.post(signal_command(6));
  rig.end_call(2);
  rig.end_call(3);  // nothing sent in call 3
  rig.steps();
  rig.transport.complete(1);
  rig.steps();
  EXPECT_EQ(rig.sent(), 0u);
  rig.transport.complete(0);
  rig.steps();
  EXPECT_EQ(rig.sent(), 3u);
}

TEST(ProxyEngine, SentStartsAtTheFirstEpoch) {
  const Epoch first = (Epoch{1} << 32) - 3;
  Rig rig(ordered_caps(), first);
  EXPECT_EQ(rig.sent(), first - 1) << "a waiter for the call before the first would wait for ever";
  for (Epoch e = first; e < first + 6; ++e) {
    rig.end_call(e);
    rig.steps();
    EXPECT_EQ(rig.sent(), e);
  }
}

TEST(ProxyEngine, StaysBelowTheDepthOfTheTransportAndLosesNothing) {
  constexpr uint32_t kDepth = 16;
  for (const Caps& caps : {ordered_caps(kDepth), counted_caps(kDepth), completion_caps(kDepth)}) {
    SCOPED_TRACE(caps.name);
    Rig rig(caps);
    for (uint32_t i = 0; i < 100; ++i) rig.post(write_command(i));
    rig.end_call(1);
    size_t completed = 0;
    for (int round = 0; round < 1000 && rig.sent() == 0; ++round) {
      rig.steps(1);
      ASSERT_LT(rig.transport.posted.size() - completed, kDepth) << "no credit was left";
      if (completed < rig.transport.posted.size()) rig.transport.complete(completed++);
    }
    EXPECT_EQ(rig.sent(), 1u);
    std::vector<int> data(100);
    for (const WriteRequest& r : rig.transport.posted) data[0] += r.bytes > 0 ? 1 : 0;
    EXPECT_EQ(data[0], 100);
    EXPECT_GT(rig.counters.credit_stalls.value(), 0u);
  }
}

TEST(ProxyEngine, DepthOfOneStillMoves) {
  for (const Caps& caps : {ordered_caps(1), counted_caps(1), completion_caps(1)}) {
    SCOPED_TRACE(caps.name);
    Rig rig(caps);
    rig.transport.room = 1;
    for (uint32_t i = 0; i < 5; ++i) rig.post(write_command(i));
    rig.end_call(1);
    size_t completed = 0;
    for (int round = 0; round < 100 && rig.sent() == 0; ++round) {
      rig.steps(1);
      if (completed < rig.transport.posted.size()) {
        rig.transport.complete(completed++);
        rig.transport.room = 1;
      }
    }
    EXPECT_EQ(rig.sent(), 1u);
  }
}

TEST(ProxyEngine, RefusedRequestsAreOfferedAgainInOrder) {
  Rig rig(ordered_caps());
  rig.transport.room = 3;
  for (uint32_t i = 0; i < 4; ++i) rig.post(write_command(i));
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 3u);
  EXPECT_EQ(rig.counters.post_refusals.value(), 1u);
  rig.transport.room = 100;
  rig.steps();
  ASSERT_EQ(rig.transport.posted.size(), 8u);
  for (uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rig.transport.posted[2 * i].kind, RequestKind::write);
    EXPECT_EQ(rig.transport.posted[2 * i + 1].dst_offset, static_cast<uint64_t>(rig.layout.word_offset(i)));
  }
}

TEST(ProxyEngine, APeerThatTakesNothingHoldsUpNoOtherAndThenGetsAllInOrder) {
  constexpr uint32_t kDepth = 128;  // enough for all that waits: one peer may fill it
  for (const Caps& caps : {ordered_caps(kDepth), counted_caps(kDepth), completion_caps(kDepth)}) {
    SCOPED_TRACE(caps.name);
    Rig rig(caps);
    rig.transport.full_peer = kPeer;
    for (uint32_t i = 0; i < 20; ++i) {
      rig.post(write_command(i, 4, 1, 2, kPeer));
      rig.post(write_command(i, 4, 1, 2, kOther));
    }
    rig.steps();
    const size_t requests = caps.ordered_writes ? 40 : 20;
    ASSERT_EQ(rig.transport.posted.size(), requests);
    for (const WriteRequest& request : rig.transport.posted) EXPECT_EQ(request.peer, kOther);
    EXPECT_EQ(rig.counters.post_refusals.value(), 1u);
    rig.transport.full_peer.reset();
    rig.steps();
    ASSERT_EQ(rig.transport.posted.size(), 2 * requests);
    for (size_t i = 0; i < requests; ++i) {
      EXPECT_EQ(rig.transport.posted[requests + i].peer, kPeer);
      EXPECT_EQ(rig.transport.posted[requests + i].dst_offset, rig.transport.posted[i].dst_offset) << i;
      EXPECT_EQ(rig.transport.posted[requests + i].immediate, rig.transport.posted[i].immediate) << i;
    }
  }
}

TEST(ProxyEngine, WhatLittleRoomThereIsGoesRoundThePeers) {
  Rig rig(counted_caps(), 1, 256);
  for (uint32_t i = 0; i < 10; ++i) {
    rig.post(write_command(i, 4, 1, 2, kPeer));
    rig.post(write_command(i, 4, 1, 2, kOther));
  }
  for (int round = 0; round < 8; ++round) {
    rig.transport.room = 1;
    rig.steps(1);
  }
  ASSERT_EQ(rig.transport.posted.size(), 8u);
  const auto is_for_peer = [](const WriteRequest& request) { return request.peer == kPeer; };
  EXPECT_EQ(std::count_if(rig.transport.posted.begin(), rig.transport.posted.end(), is_for_peer), 4);
}

TEST(ProxyEngine, BusyRingDoesNotStarveAnother) {
  Rig rig(ordered_caps(8));
  for (uint32_t i = 0; i < 200; ++i) rig.post(signal_command(1), 0);
  rig.post(signal_command(2), 1);
  size_t completed = 0;
  bool found = false;
  for (int round = 0; round < 12 && !found; ++round) {
    rig.steps(1);
    while (completed < rig.transport.posted.size()) rig.transport.complete(completed++);
    for (const WriteRequest& r : rig.transport.posted) found |= r.dst_offset == uint64_t(rig.layout.word_offset(2));
  }
  EXPECT_TRUE(found);
}

TEST(ProxyEngine, BadCommandsAreNamedByRingIndexAndField) {
  const uint32_t half_units = 32768 / kWireUnitBytes;
  const uint32_t user_units = 16384 / kWireUnitBytes;
  Command from_user = write_command(5, 1, user_units, 0);
  from_user.from_user = true;
  const std::pair<Command, std::string> cases[] = {
      {signal_command(5, Rank{2}), "bad field peer"},
      {signal_command(5, Rank{4000}), "bad field peer"},
      {signal_command(5, Rank{0}), "bad field peer"},
      {signal_command(kFlagWords), "bad field word"},
      {write_command(5, 0), "bad field units"},
      {write_command(5, 2, half_units - 1), "bad field src_unit"},
      {write_command(5, 2, 0, half_units - 1), "bad field dst_unit"},
      {write_command(5, 1, (uint64_t{1} << 33) - 1), "bad field src_unit"},
      {from_user, "bad field src_unit"},
      {{.kind = static_cast<CommandKind>(3), .peer = kPeer}, "bad field kind"},
      {{.kind = CommandKind::call_end, .peer = {}, .epoch = 2}, "bad field epoch"},
  };
  for (const auto& [command, text] : cases) {
    SCOPED_TRACE(text);
    Rig rig(ordered_caps());
    rig.post(write_command(5, 2, half_units - 2, half_units - 2), 1);  // the last legal one
    rig.post(signal_command(kFlagWords - 1), 1);
    rig.post(command, 1);
    const ProxyFault fault = rig.fault();
    EXPECT_EQ(fault.kind, ProxyFaultKind::bad_command);
    EXPECT_NE(fault.text.find(text), std::string::npos) << fault.text;
    EXPECT_NE(fault.text.find("ring 1, command 2"), std::string::npos) << fault.text;
  }
}

TEST(ProxyEngine, GrownArenaMayBeUsed) {
  Rig rig(ordered_caps());
  rig.committed.half = 65536;
  rig.post(write_command(5, 1, 4095, 4095));
  rig.steps();
  EXPECT_EQ(rig.transport.posted.size(), 2u);
}

TEST(ProxyEngine, FailedRequestNamesPeerAndStatus) {
  Rig rig(ordered_caps());
  rig.post(signal_command(5, kOther));
  rig.steps();
  rig.transport.fail(0, 12);
  const ProxyFault fault = rig.fault();
  EXPECT_EQ(fault.kind, ProxyFaultKind::failed_request);
  EXPECT_EQ(fault.peer, kOther);
  EXPECT_NE(fault.text.find("retries exceeded"), std::string::npos) << fault.text;
}

TEST(ProxyEngine, AReportThatFailsIsAFaultUnlessItsPeerHasLeftOrSaysSoInTime) {
  bool has_left = false;
  const auto rig_with = [&](std::chrono::nanoseconds leaving_time) {
    return std::make_unique<Rig>(counted_caps(), 1, 256, [&has_left, leaving_time](ProxyConfig& config) {
      config.has_left = [&has_left](Rank peer) { return peer == kOther && has_left; };
      config.leaving_time = leaving_time;
    });
  };
  const auto rig = rig_with(std::chrono::hours(1));
  rig->transport.fail_own(kOther, 12);
  rig->steps();  // it may be about to leave
  has_left = true;
  rig->steps();
  rig->transport.fail_own(kOther, 12);
  rig->steps();
  const auto impatient = rig_with(std::chrono::nanoseconds(0));
  impatient->transport.fail_own(kOther, 12);
  impatient->steps();
  impatient->transport.fail_own(kPeer, 12);
  const ProxyFault fault = impatient->fault();
  EXPECT_EQ(fault.kind, ProxyFaultKind::failed_request);
  EXPECT_EQ(fault.peer, kPeer);
  EXPECT_NE(fault.text.find("a report of what has come to rank 1 failed"), std::string::npos) << fault.text;
  EXPECT_NE(fault.text.find("retries exceeded"), std::string::npos) << fault.text;
}

// What the last words of a call to a peer come to, once it has been told that this rank is done with the call.
TEST(ProxyEngine, AFailureBehindTheLastWordIsAFaultUnlessThePeerHasLeftOrSaysSoInTime) {
  for (const Caps& caps : {ordered_caps(), counted_caps(), completion_caps()}) {
    bool has_left = false;
    std::chrono::nanoseconds leaving_time = std::chrono::hours(1);
    const auto rig_that_lost_its_last_words = [&] {
      auto rig = std::make_unique<Rig>(caps, 1, 256, [&](ProxyConfig& config) {
        config.has_left = [&has_left](Rank peer) { return peer == kPeer && has_left; };
        config.leaving_time = config.hearing_time = leaving_time;
      });
      rig->post(signal_command(kFlags.done(Rank{0})));
      rig->post(signal_command(kFlags.done(Rank{0}), kOther));
      rig->end_call(1);
      rig->steps();
      const bool first_is_peers = rig->transport.posted.at(0).peer == kPeer;
      rig->transport.fail(first_is_peers ? 0 : 1, 12);
      rig->transport.complete(first_is_peers ? 1 : 0);
      return rig;
    };
    const auto rig = rig_that_lost_its_last_words();
    rig->steps();
    EXPECT_EQ(rig->sent(), 0u) << caps.name << ": it may be there";
    has_left = true;
    rig->steps();
    EXPECT_EQ(rig->sent(), 1u) << caps.name;
    EXPECT_TRUE(rig->engine->is_idle());
    rig->transport.fail(0, 12);
    EXPECT_EQ(rig->fault().kind, ProxyFaultKind::failed_request) << "of a request that is not in flight";
    has_left = false;
    leaving_time = std::chrono::nanoseconds(0);
    const ProxyFault fault = rig_that_lost_its_last_words()->fault();
    EXPECT_EQ(fault.kind, ProxyFaultKind::failed_request);
    EXPECT_EQ(fault.peer, kPeer);
    EXPECT_NE(fault.text.find("a request to rank 1 failed"), std::string::npos) << fault.text;
  }
}

// It has what it waited for, but has not said so, by an arrival or a word in memory.
TEST(ProxyEngine, AFailureOfARequestToAPeerThatIsStillInTheCallIsAFaultAtOnce) {
  for (const Caps& caps : {ordered_caps(), counted_caps(), completion_caps()}) {
    for (const bool has_said_so : {false, true}) {
      Rig rig(caps, 1, 256, [&](ProxyConfig& config) {
        if (!caps.write_with_immediate) config.words = config.control_page;
        config.has_left = [](Rank) { return false; };
        config.leaving_time = std::chrono::hours(1);
      });
      if (has_said_so && caps.write_with_immediate) rig.transport.arrive(kPeer, pack(Immediate{kFlags.done(kPeer), 1}));
      if (has_said_so) publish_word(rig.arena.data(), rig.layout, kFlags.done(kPeer), 1);
      rig.post(signal_command(kFlags.done(Rank{0})));
      rig.steps();
      rig.transport.fail(0, 12);
      if (has_said_so) {
        EXPECT_NO_THROW(rig.steps()) << caps.name << ": it may be about to leave";
      } else {
        EXPECT_EQ(rig.fault().peer, kPeer) << caps.name;
      }
    }
  }
}

// It waits for what is still to come, so it is there, and nobody has to wait for its goodbye.
TEST(ProxyEngine, AFailureBeforeTheLastWordToAPeerIsAFaultAtOnce) {
  Rig rig(counted_caps(), 1, 256, [](ProxyConfig& config) {
    config.has_left = [](Rank) { return false; };
    config.leaving_time = std::chrono::hours(1);
  });
  rig.post(write_command(5));
  rig.post(signal_command(kFlags.done(Rank{0}), kOther));
  rig.steps();
  rig.transport.fail(rig.transport.posted.at(0).peer == kPeer ? 0 : 1, 12);
  EXPECT_EQ(rig.fault().peer, kPeer);
}

// A queue that fails without a request says so by an event of none, whose number may be that of one to somebody else.
TEST(ProxyEngine, AFailureOfNoRequestIsNotTakenForThatOfAnotherPeer) {
  Rig rig(counted_caps(), 1, 256, [](ProxyConfig& config) { config.has_left = [](Rank) { return true; }; });
  rig.post(signal_command(kFlags.done(Rank{0}), kOther));
  rig.steps();
  ASSERT_EQ(rig.transport.posted.at(0).id, 0u);
  rig.transport.to_report.push_back({.kind = EventKind::failed, .peer = kPeer, .status = 12});
  EXPECT_EQ(rig.fault().peer, kPeer);
}

TEST(ProxyEngine, SecondCompletionOfOneRequestIsAFault) {
  for (const Caps& caps : {ordered_caps(), counted_caps(), completion_caps()}) {
    Rig rig(caps);
    rig.post(write_command(5));
    rig.steps();
    rig.transport.complete(0);
    rig.transport.complete(0);
    EXPECT_EQ(rig.fault().kind, ProxyFaultKind::bad_event) << caps.name;
  }
}

TEST(ProxyEngine, ArrivalsOfNeighbouringEpochsKeepTheirEpoch) {
  for (const Epoch first : {Epoch{2}, (Epoch{1} << 11) - 1, Epoch{1} << 11, (Epoch{1} << 32) - 3}) {
    Rig rig(counted_caps(), first);
    std::vector<Arrival> expected;
    for (Epoch e = first; e < first + 5; ++e) {
      for (const Epoch seen : {e + 1, e - 1, e}) {  // a peer a call ahead, a late word, this call
        rig.transport.arrive(kPeer, pack(Immediate{7, seen}));
        expected.push_back({7, seen});
      }
      rig.end_call(e);
      rig.steps();
    }
    EXPECT_EQ(rig.sink.arrivals, expected) << first;
  }
}

TEST(ProxyEngine, FullSinkLosesNoArrivalAndKeepsTheirOrder) {
  Rig rig(counted_caps());
  rig.sink.room = 2;
  for (uint32_t word = 0; word < 6; ++word) rig.transport.arrive(kPeer, pack(Immediate{word, 1}));
  rig.steps();
  EXPECT_EQ(rig.sink.arrivals.size(), 2u);
  EXPECT_FALSE(rig.engine->is_idle());
  rig.sink.room = 100;
  rig.transport.arrive(kOther, pack(Immediate{6, 1}));
  rig.steps();
  ASSERT_EQ(rig.sink.arrivals.size(), 7u);
  for (uint32_t word = 0; word < 7; ++word) EXPECT_EQ(rig.sink.arrivals[word].word, word);
  EXPECT_EQ(rig.counters.sink_refusals.value(), 1u);
}

TEST(ProxyEngine, ArrivalForNoWordOrFromNoPeerIsAFault) {
  {
    Rig rig(counted_caps());
    rig.transport.arrive(kPeer, pack(Immediate{kFlagWords, 1}));
    EXPECT_EQ(rig.fault().kind, ProxyFaultKind::bad_event);
  }
  Rig rig(counted_caps());
  rig.transport.arrive(Rank{2}, pack(Immediate{5, 1}));
  EXPECT_EQ(rig.fault().kind, ProxyFaultKind::bad_event);
}

TEST(ProxyEngine, CountsBytesRequestsAndCommandsByPeer) {
  Rig rig(ordered_caps());
  rig.post(write_command(1, 4));
  rig.post(write_command(2, 6, 0, 0, kOther));
  rig.post(signal_command(3, kOther));
  rig.end_call(1);
  rig.steps();
  const ProxyTotals totals = rig.counters.totals({kPeer, kOther});
  EXPECT_EQ(totals.commands, 5u);
  EXPECT_EQ(totals.data_bytes(), 160u);
  EXPECT_EQ(totals.peers[0].data_bytes, 64u);
  EXPECT_EQ(totals.peers[0].requests, 2u);
  EXPECT_EQ(totals.peers[1].data_bytes, 96u);
  EXPECT_EQ(totals.peers[1].commands, 2u);
  EXPECT_EQ(totals.peers[1].requests, 3u);
}

TEST(ProxyEngine, RefusesAConfigurationThatCannotWork) {
  Rig rig(counted_caps());
  ProxyConfig config{
      .rank = Rank{0}, .layout = rig.layout, .control_page = rig.arena.data(), .peers = {kPeer}, .rings = {}};
  EXPECT_THROW(ProxyEngine(config, rig.transport, rig.committed, rig.counters), Error) << "no sink";
  config.arrivals = &rig.sink;
  EXPECT_THROW(ProxyEngine(config, rig.transport, rig.committed, rig.counters), Error) << "no rings";
  config.rings = {rig.rings[0]->memory()};
  config.first_epoch = 0;
  EXPECT_THROW(ProxyEngine(config, rig.transport, rig.committed, rig.counters), Error) << "epoch 0";
}

}  // namespace
}  // namespace tilewire

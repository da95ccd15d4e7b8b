#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "testing/given_time.h"
#include "transport/fault/fault_script.h"
#include "transport/fault/fault_transport.h"
#include "transport/manual_transport.h"
#include "transport/test_network.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

TEST(FaultScript, ReadsEveryFault) {
  const std::vector<Fault> faults = parse_fault_script(
      "stall:after=10,ms=50;stall;full:after=2,times=3;drop:peer=2,after=5;withhold:peer=1;withhold;"
      "fail:nth=3,status=7;delay:us=5000,peer=2;die:step=100;report:peer=2,after=4,status=9;deny:peer=3,nth=2,status="
      "8");
  ASSERT_EQ(faults.size(), 11u);
  EXPECT_EQ(faults[0].kind, FaultKind::stall);
  EXPECT_EQ(faults[0].after, 10u);
  EXPECT_EQ(faults[0].duration, 50ms);
  EXPECT_FALSE(faults[1].duration);
  EXPECT_EQ(faults[2].count, 3u);
  EXPECT_EQ(faults[3].peer, Rank{2});
  EXPECT_EQ(faults[3].after, 5u);
  EXPECT_FALSE(faults[5].peer);
  EXPECT_EQ(faults[6].count, 3u);
  EXPECT_EQ(faults[6].status, 7);
  EXPECT_EQ(faults[7].duration, 5ms);
  EXPECT_EQ(faults[8].count, 100u);
  EXPECT_EQ(faults[9].kind, FaultKind::report);
  EXPECT_EQ(faults[9].status, 9);
  EXPECT_EQ(faults[10].kind, FaultKind::deny);
  EXPECT_EQ(faults[10].peer, Rank{3});
  EXPECT_EQ(faults[10].count, 2u);
  EXPECT_EQ(faults[10].status, 8);
  EXPECT_TRUE(parse_fault_script("").empty());
}

TEST(FaultScript, NamesWhatItCannotRead) {
  const std::pair<const char*, const char*> cases[] = {
      {"stal", "no fault is called \"stal\""},
      {"stall:after", "\"\" is no value for after"},
      {"stall:after=x", "\"x\" is no value for after"},
      {"stall:after=-1", "\"-1\" is no value for after"},
      {"stall:after=1,after=2", "after is given twice"},
      {"stall:peer=1", "stall has no \"peer\""},
      {"fail", "fail needs nth or data"},
      {"fail:nth=1,data=1", "fail needs nth or data"},
      {"fail:nth=0", "\"0\" is no value for nth"},
      {"drop:after=1", "drop needs peer"},
      {"report", "report needs peer"},
      {"deny:peer=1", "deny needs nth"},
      {"delay:peer=1", "delay needs us"},
      {"die:step=99999999999999999999", "is no value for step"},
      {"drop:peer=4294967296", "is no value for peer"},
      {";stall", "a fault is missing"},
      {"stall;;full:times=1", "a fault is missing"},
      {"stall: after=1", "stall has no \" after\""},
  };
  for (const auto& [script, text] : cases) {
    try {
      parse_fault_script(script);
      ADD_FAILURE() << script << " was read";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid_argument);
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  }
}

// The fault transport over one that the test drives.
struct Rig {
  explicit Rig(std::string_view script, bool ordered = true) {
    auto inner = std::make_unique<ManualTransport>(
        Caps{.name = "manual", .ordered_writes = ordered, .value_writes = true, .max_outstanding = 64});
    manual = inner.get();
    transport = make_fault_transport(std::move(inner), script);
  }

  bool post(uint64_t id, Rank peer = Rank{1}, bool control = false) {
    const WriteRequest request{.kind = control ? RequestKind::write_value : RequestKind::write,
                               .peer = peer,
                               .bytes = control ? 0u : 64u,
                               .id = id};
    return transport->post({&request, 1}) == 1;
  }
  std::vector<Event> poll() {
    std::array<Event, 32> events;
    const size_t n = transport->poll(events);
    return {events.begin(), events.begin() + static_cast<ptrdiff_t>(n)};
  }
  std::vector<uint64_t> sent() const {
    std::vector<uint64_t> ids;
    for (const WriteRequest& request : manual->posted) ids.push_back(request.id);
    return ids;
  }

  ManualTransport* manual;
  std::unique_ptr<Transport> transport;
};

TEST(Fault, OfRequestsWithDataAloneTheLastWordsOfACallAreNotCounted) {
  Rig rig("fail:data=2");
  for (const uint64_t id : {1, 2}) EXPECT_TRUE(rig.post(id, Rank{1}, /*control=*/true));
  for (const uint64_t id : {3, 4}) EXPECT_TRUE(rig.post(id));
  EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(Fault, WhatIsDeniedIsSentAndFailsAllTheSame) {
  Rig rig("deny:peer=2,nth=2,status=9");
  for (const int32_t peer : {2, 1, 2}) EXPECT_TRUE(rig.post(static_cast<uint64_t>(peer), Rank{peer}));
  ASSERT_EQ(rig.sent().size(), 3u);
  for (const size_t number : {0, 1, 2}) rig.manual->complete(number);
  const std::vector<Event> events = rig.poll();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].kind, EventKind::completed);
  EXPECT_EQ(events[1].kind, EventKind::completed);
  EXPECT_EQ(events[2].kind, EventKind::failed);
  EXPECT_EQ(events[2].id, 2u);
  EXPECT_EQ(rig.transport->describe_status(events[2].status), "injected by the fault script");
  EXPECT_EQ(rig.transport->faults_come(), (std::vector<uint64_t>{1}));
}

TEST(Fault, EmptyScriptChangesNothing) {
  Rig rig("");
  EXPECT_TRUE(rig.post(1));
  rig.manual->complete(0);
  ASSERT_EQ(rig.poll().size(), 1u);
  EXPECT_EQ(rig.transport->caps().name, "manual");
}

TEST(Fault, StallEndsAfterItsTime) {
  expect_given_time(30ms, [](std::chrono::milliseconds limit) {
    Rig rig("stall:after=2,ms=" + std::to_string(limit.count()));
    EXPECT_TRUE(rig.post(1));
    EXPECT_TRUE(rig.post(2));
    rig.manual->complete(0);
    const bool is_stalled = !rig.post(3) && rig.poll().empty();
    std::this_thread::sleep_for(limit + 5ms);
    EXPECT_EQ(rig.poll().size(), is_stalled ? 1u : 0u);
    EXPECT_TRUE(!is_stalled || rig.post(3));
    return is_stalled ? "" : "nothing stalled";
  });
}

TEST(Fault, StallWithoutTimeLastsForEver) {
  Rig rig("stall:after=1");
  EXPECT_TRUE(rig.post(1));
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(rig.post(2));
}

TEST(Fault, FullQueueRefusesSoManyPosts) {
  Rig rig("full:after=1,times=3");
  EXPECT_TRUE(rig.post(1));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(rig.post(2));
  EXPECT_TRUE(rig.post(2));
  EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{1, 2}));
}

TEST(Fault, DroppedPeerGetsNothingAndCompletesNothing) {
  Rig rig("drop:peer=2,after=1");
  EXPECT_TRUE(rig.post(1, Rank{2}));
  EXPECT_TRUE(rig.post(2, Rank{2}));
  EXPECT_TRUE(rig.post(3, Rank{1}));
  EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{1, 3}));
}

TEST(Fault, WithheldCompletionsNeverComeThoughTheDataWent) {
  Rig rig("withhold:peer=2,after=1");
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_TRUE(rig.post(id, Rank{id == 3 ? 1 : 2}));
  EXPECT_EQ(rig.sent().size(), 3u);
  for (size_t i = 0; i < 3; ++i) rig.manual->complete(i);
  const std::vector<Event> events = rig.poll();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].id, 1u);
  EXPECT_EQ(events[1].id, 3u);
}

TEST(Fault, NthRequestFailsWithItsStatus) {
  Rig rig("fail:nth=2,status=7");
  for (uint64_t id = 1; id <= 3; ++id) EXPECT_TRUE(rig.post(id));
  EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{1, 3}));
  const std::vector<Event> events = rig.poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::failed);
  EXPECT_EQ(events[0].id, 2u);
  EXPECT_EQ(events[0].status, 7);
  EXPECT_EQ(rig.transport->describe_status(7), "injected by the fault script");
  EXPECT_EQ(rig.transport->describe_status(12), "retries exceeded");
}

TEST(Fault, AReportFailsOnceBehindSoManyRequests) {
  Rig rig("report:peer=2,after=2,status=7");
  for (uint64_t id = 1; id <= 2; ++id) {
    EXPECT_TRUE(rig.poll().empty());
    EXPECT_TRUE(rig.post(id));
  }
  const std::vector<Event> events = rig.poll();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::own_failed);
  EXPECT_EQ(events[0].peer, Rank{2});
  EXPECT_EQ(events[0].status, 7);
  EXPECT_EQ(rig.transport->describe_status(7), "injected by the fault script");
  EXPECT_TRUE(rig.poll().empty());
}

TEST(Fault, OfATornRequestHalfIsSentAndItCompletes) {
  Rig rig("tear:nth=2");
  std::vector<WriteRequest> requests(4, {.peer = Rank{1}, .bytes = 640});
  requests[1].bytes = 0;  // has nothing to tear
  ASSERT_EQ(rig.transport->post(requests), requests.size());
  std::vector<uint64_t> bytes;
  for (const WriteRequest& request : rig.manual->posted) bytes.push_back(request.bytes);
  EXPECT_EQ(bytes, (std::vector<uint64_t>{640, 0, 320, 640}));
}

TEST(Fault, RequestThatTheNetworkRefusesIsCountedOnce) {
  Rig rig("fail:nth=2");
  rig.manual->room = 0;
  EXPECT_FALSE(rig.post(1));
  EXPECT_FALSE(rig.post(1));
  rig.manual->room = 10;
  EXPECT_TRUE(rig.post(1));
  EXPECT_TRUE(rig.post(2));
  EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{1}));
}

TEST(Fault, DelayedControlWordKeepsWhatMustStayBehindIt) {
  expect_given_time(20ms, [](std::chrono::milliseconds limit) {
    Rig rig("delay:us=" + std::to_string(limit.count()) + "000");
    EXPECT_TRUE(rig.post(1, Rank{1}));
    EXPECT_TRUE(rig.post(2, Rank{1}, true));
    EXPECT_TRUE(rig.post(3, Rank{1}));
    EXPECT_TRUE(rig.post(4, Rank{2}));
    rig.poll();
    const std::vector<uint64_t> at_once = rig.sent();
    std::this_thread::sleep_for(limit + 5ms);
    rig.poll();
    EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{1, 4, 2, 3}));
    return at_once == std::vector<uint64_t>{1, 4} ? "" : "sent at once: " + testing::PrintToString(at_once);
  });
}

TEST(Fault, DelayedControlWordIsOvertakenWhereNoOrderIsPromised) {
  Rig rig("delay:us=20000", false);
  EXPECT_TRUE(rig.post(1, Rank{1}, true));
  EXPECT_TRUE(rig.post(2, Rank{1}));
  EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{2}));  // what is held goes out in poll() alone
  std::this_thread::sleep_for(25ms);
  rig.poll();
  EXPECT_EQ(rig.sent(), (std::vector<uint64_t>{2, 1}));
}

// One fault of each sort with its own line, none before it has come, and each for itself.
TEST(Fault, EachCountsHowOftenItHasCome) {
  const std::pair<const char*, uint64_t> cases[] = {
      {"stall:after=4", 2}, {"full:after=3,times=2", 2}, {"drop:peer=1,after=1", 3}, {"withhold:peer=1,after=3", 1},
      {"fail:nth=2", 1},    {"delay:us=0", 2},           {"die:step=1000", 0},       {"drop:peer=3", 0}};
  for (const auto& [script, come] : cases) {
    Rig rig(std::string(script) + ";fail:nth=1000");
    EXPECT_EQ(rig.transport->faults_come(), (std::vector<uint64_t>{0, 0}));
    for (uint64_t id = 1; id <= 4; ++id) {
      while (!rig.post(id, Rank{1}, id % 2 == 0)) continue;
    }
    for (size_t i = 0; i < rig.manual->posted.size(); ++i) rig.manual->complete(i);
    rig.poll();
    rig.poll();
    EXPECT_EQ(rig.transport->faults_come(), (std::vector<uint64_t>{come, 0})) << script;
  }
  EXPECT_TRUE(Rig("").transport->faults_come().empty());
}

TEST(Fault, ThreadDiesBehindSoManyRequestsHoweverOftenItPolls) {
  Rig rig("die:after=2");
  for (int i = 0; i < 100; ++i) rig.poll();
  EXPECT_TRUE(rig.post(1));
  for (int i = 0; i < 100; ++i) rig.poll();
  EXPECT_TRUE(rig.post(2));
  EXPECT_THROW(rig.poll(), std::runtime_error);
  EXPECT_EQ(rig.transport->faults_come(), (std::vector<uint64_t>{1}));
}

TEST(Fault, StepNThrows) {
  Rig rig("die:step=3");
  EXPECT_TRUE(rig.post(1));
  rig.poll();
  EXPECT_THROW(rig.poll(), std::runtime_error);
}

}  // namespace
}  // namespace tilewire

// What the RC transport posts for a request, and what it tells of completions that say that a queue pair has failed.
#include <tilewire/error.h>

#include "transport/error_text.h"
#include "transport/rc/queue.h"
#include "transport/rc/rc_fixture.h"

namespace tilewire {
namespace {

using namespace verbs;
using std::chrono::milliseconds;

TEST_F(RcPosts, ARequestIsCutAtTheLongestMessageAndAtKeysOfBothSidesWithItsImmediateLast) {
  device_.ports[0].attr.max_msg_sz = static_cast<uint32_t>(2 * kPage);
  const auto transport = connected();
  const WriteRequest request{.kind = RequestKind::write_with_immediate,
                             .peer = Rank{1},
                             .src_offset = kPage / 2,
                             .dst_offset = 3 * kPage,
                             .bytes = 5 * kPage,
                             .immediate = 0x01020304};
  ASSERT_EQ(transport->post({&request, 1}), 1u);
  // Cut by: the own key, the message, the peer's key, the end.
  const std::vector<uint64_t> expected{2 * kPage, kPage / 2, kPage / 2, 2 * kPage};
  ASSERT_EQ(device_.posted.size(), expected.size());
  uint64_t at = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& [wr, sge] = device_.posted[i];
    const bool is_last = i + 1 == expected.size();
    EXPECT_EQ(sge.length, expected[i]) << i;
    EXPECT_EQ(sge.addr, own(request.src_offset + at));
    EXPECT_EQ(wr.remote_addr, kPeerArena + request.dst_offset + at);
    EXPECT_EQ(wr.rkey, request.dst_offset + at < 6 * kPage ? 71u : 72u);
    EXPECT_EQ(wr.opcode, is_last ? abi::kWrRdmaWriteWithImm : abi::kWrRdmaWrite);
    at += sge.length;
  }
  EXPECT_EQ(at, request.bytes);
  const auto* immediate = reinterpret_cast<const uint8_t*>(&device_.posted.back().wr.imm_data);
  EXPECT_EQ(std::vector<int>(immediate, immediate + 4), (std::vector<int>{1, 2, 3, 4})) << "network byte order";
}

// It would be refused for ever, as by a queue that is full.
TEST_F(RcSetup, ARequestAcrossMoreRangesThanTheQueueHasEntriesIsRefusedByNameAndOneAcrossAsManyIsPosted) {
  constexpr uint64_t kParts = 32;
  arena_.resize(kParts * kPage);
  options_.send_entries = 16;
  const auto transport = make(1);
  for (uint64_t i = 0; i < kParts; ++i) transport->register_arena(i * kPage, kPage);
  RcAddress peer = address_of(Rank{1});
  peer.keys = {{0, kParts * kPage, 71}};
  transport->connect(std::vector<Bytes>{{}, peer.pack()}, milliseconds(1));
  const WriteRequest fits{.peer = Rank{1}, .src_offset = kPage, .bytes = 16 * kPage, .id = 6};
  const WriteRequest never{.peer = Rank{1}, .src_offset = kPage, .bytes = 20 * kPage, .id = 7};
  ASSERT_EQ(transport->post({&fits, 1}), 1u);
  EXPECT_EQ(device_.posted.size(), 16u);
  const Error error = error_of([&] { transport->post({&never, 1}); });
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_SAYS(error, "request 7 to rank 1: src_offset = 4096, dst_offset = 0, bytes = 81920, parts = 20");
  EXPECT_SAYS(error, "rc_send_entries = 16");
}

TEST_F(RcPosts, TheLastOfABatchIsSignalledAndFewOthersAre) {
  const auto transport = connected();
  const std::vector<WriteRequest> requests(40, {.peer = Rank{1}, .bytes = 16});
  ASSERT_EQ(transport->post(requests), requests.size());
  ASSERT_EQ(device_.posted.size(), requests.size());
  size_t signalled = 0;
  for (const auto& posted : device_.posted) signalled += posted.wr.send_flags & abi::kSendSignaled ? 1 : 0;
  EXPECT_NE(device_.posted.back().wr.send_flags & abi::kSendSignaled, 0u);
  EXPECT_LE(signalled, 4u);
  EXPECT_GE(signalled, 3u) << "a long batch completes in parts";
}

TEST_F(RcPosts, ValuesAreSentInlineWhereTheDeviceCanElseFromMemoryThatStaysAsItIs) {
  for (const uint32_t inline_bytes : {16u, 0u}) {
    options_.inline_bytes = inline_bytes;
    device_.posted.clear();
    const auto transport = connected();
    const std::vector<WriteRequest> requests{
        {.kind = RequestKind::write_value, .peer = Rank{1}, .dst_offset = 8, .value = 5},
        {.kind = RequestKind::write_value, .peer = Rank{1}, .dst_offset = 8, .value = 6}};
    ASSERT_EQ(transport->post(requests), 2u);
    for (size_t i = 0; i < 2; ++i) {
      const auto& [wr, sge] = device_.posted[i];
      EXPECT_EQ((wr.send_flags & abi::kSendInline) != 0, inline_bytes > 0);
      EXPECT_EQ(sge.length, sizeof(uint64_t));
      EXPECT_EQ(*reinterpret_cast<const uint64_t*>(sge.addr), requests[i].value) << "still there when it is read";
    }
  }
}

TEST_F(RcSetup, APostThatTheDeviceRefusesFailsItsRequestsByName) {
  const auto transport = make(1);
  transport->register_arena(0, kPage);
  RcAddress peer = address_of(Rank{1});
  peer.keys = {{0, kPage, 1}};
  const std::vector<Bytes> addresses{{}, peer.pack()};
  transport->connect(addresses, milliseconds(1));
  device_.refusals = {{"post_send", 0}};
  const WriteRequest requests[] = {{.peer = Rank{1}, .bytes = 16, .id = 4}, {.peer = Rank{1}, .bytes = 16, .id = 5}};
  EXPECT_EQ(transport->post(requests), 2u);
  Event events[4];
  ASSERT_EQ(transport->poll(events), 2u);
  EXPECT_EQ(events[0].kind, EventKind::failed);
  EXPECT_EQ(events[0].id, 4u);
  EXPECT_EQ(events[1].id, 5u);
  EXPECT_EQ(events[1].peer, Rank{1});
}

// Of a device, for which no request may ever say it.
TEST_F(RcPosts, ADeviceThatSaysThatItHasFailedEndsItByNameAndALinkThatComesBackDoesNot) {
  const auto event = [](abi::EventType type, int port = 1) {
    abi::AsyncEvent event{};
    event.element.port = port;
    event.type = type;
    return event;
  };
  for (const auto& [type, text] : {std::pair{abi::kEventDeviceFatal, "the RDMA device has failed"},
                                   std::pair{abi::kEventCqError, "a completion queue of the RDMA device has failed"}}) {
    const auto transport = connected();
    EXPECT_NO_THROW(transport->look_at_devices(milliseconds(0)));
    device_.said = {event(static_cast<abi::EventType>(4)), event(type)};
    const Error error = error_of([&] { transport->look_at_devices(std::chrono::hours(1)); });
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_SAYS(error, text);
    EXPECT_SAYS(error, "port nic0:1");
    EXPECT_EQ(device_.not_acknowledged, 0) << "to destroy what it is about would never end";
  }
  const auto transport = connected();
  device_.ports[0].attr.state = abi::kPortDown;
  device_.said = {event(abi::kEventPortError, 2)};
  EXPECT_NO_THROW(transport->look_at_devices(milliseconds(0))) << "the port of somebody else";
  device_.said = {event(abi::kEventPortError)};
  EXPECT_NO_THROW(transport->look_at_devices(std::chrono::hours(1))) << "it may come back";
  device_.said = {event(abi::kEventPortActive)};
  EXPECT_NO_THROW(transport->look_at_devices(milliseconds(0)));
  device_.said = {event(abi::kEventPortError)};
  EXPECT_SAYS(error_of([&] { transport->look_at_devices(milliseconds(0)); }), "port nic0:1 is down");
  device_.ports[0].attr.state = abi::kPortActive;
  EXPECT_NO_THROW(transport->look_at_devices(milliseconds(0))) << "it is back";
}

// A queue pair that fails flushes its receives too, and their completions may be seen first.
class RcFailures : public RcPosts {
 protected:
  static abi::Wc receive(abi::WcStatus status) {
    abi::Wc wc{};
    wc.wr_id = RcQueue::kReceiveBit;
    wc.status = status;
    return wc;
  }
  abi::Wc sent(size_t number, abi::WcStatus status) const {
    abi::Wc wc{};
    wc.wr_id = device_.posted[number].wr.wr_id;
    wc.status = status;
    return wc;
  }
  // What is told once those have come.
  std::vector<Event> told(Transport& transport, const std::vector<abi::Wc>& completions) {
    device_.completions.assign(completions.begin(), completions.end());
    std::vector<Event> events(1000);
    size_t count = transport.poll(events);
    while (!device_.completions.empty()) count += transport.poll(std::span(events).subspan(count));
    events.resize(count);
    return events;
  }
};

TEST_F(RcFailures, WhatAQueuePairFailedByIsSaidAndNotThatTheRestIsFlushed) {
  const auto transport = connected();
  const std::vector<WriteRequest> requests{{.peer = Rank{1}, .bytes = 16, .id = 4},
                                           {.peer = Rank{1}, .bytes = 16, .id = 5}};
  ASSERT_EQ(transport->post(requests), 2u);
  EXPECT_TRUE(told(*transport, {receive(abi::kWcWrFlushErr), receive(abi::kWcWrFlushErr)}).empty());
  const std::vector<Event> events =
      told(*transport, {sent(0, abi::kWcRemAccessErr), sent(1, abi::kWcWrFlushErr), receive(abi::kWcWrFlushErr)});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].id, 4u);
  EXPECT_EQ(events[0].status, abi::kWcRemAccessErr);
  EXPECT_EQ(events[1].id, 5u);
  EXPECT_EQ(events[1].status, abi::kWcWrFlushErr);
  ASSERT_EQ(transport->post(requests), 2u) << "one that has failed takes requests, and fails them";
  const std::vector<Event> later = told(*transport, {});
  ASSERT_EQ(later.size(), 2u);
  EXPECT_EQ(later[0].status, abi::kWcRemAccessErr) << "the cause is not forgotten";
}

TEST_F(RcFailures, ReceivesThatAreFlushedAreToldWhereNothingUnderWaySaysWhy) {
  {
    const auto transport = connected();
    const std::vector<Event> events = told(*transport, {receive(abi::kWcWrFlushErr), receive(abi::kWcWrFlushErr)});
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].kind, EventKind::failed);
    EXPECT_EQ(events[0].peer, Rank{1});
  }
  device_.posted.clear();
  const auto transport = connected();
  const WriteRequest request{.peer = Rank{1}, .bytes = 16, .id = 4};
  ASSERT_EQ(transport->post({&request, 1}), 1u);
  const std::vector<Event> events = told(*transport, {receive(abi::kWcWrFlushErr), sent(0, abi::kWcSuccess)});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::completed);
  EXPECT_EQ(events[1].kind, EventKind::failed);
}

TEST_F(RcFailures, AReportThatFailsIsNoRequestsFailureAndRequestsBehindItSayWhy) {
  options_.receive_entries = 16;
  const auto transport = connected();
  const std::vector<abi::Wc> immediates(4, receive(abi::kWcSuccess));  // a quarter of the entries
  ASSERT_EQ(told(*transport, immediates).size(), 4u);
  ASSERT_EQ(device_.posted.size(), 1u) << "the report";
  const std::vector<Event> events = told(*transport, {sent(0, abi::kWcRetryExcErr)});
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::own_failed);
  EXPECT_EQ(events[0].peer, Rank{1});
  EXPECT_EQ(events[0].status, abi::kWcRetryExcErr);
  const WriteRequest request{.peer = Rank{1}, .bytes = 16, .id = 4};
  ASSERT_EQ(transport->post({&request, 1}), 1u);
  const std::vector<Event> later = told(*transport, {});
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].kind, EventKind::failed);
  EXPECT_EQ(later[0].status, abi::kWcRetryExcErr);
}

}  // namespace
}  // namespace tilewire

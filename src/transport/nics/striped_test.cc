// Several NICs as one transport: each gets its share, a full one holds up nobody else's, a dead one is named, and ranks
// with different numbers of them make do with the fewest.
#include "transport/nics/striped_transport.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <array>

#include "base/log.h"
#include "transport/error_text.h"
#include "transport/manual_transport.h"
#include "transport/proxy_engine.h"

namespace tilewire {
namespace {

// A rank over some ManualTransports.
struct Rig {
  explicit Rig(size_t nics, uint32_t room = 1000) {
    std::vector<StripedNic> list;
    for (size_t i = 0; i < nics; ++i) {
      auto made = std::make_unique<ManualTransport>(Caps{.name = "manual",
                                                         .value_writes = true,
                                                         .write_with_immediate = true,
                                                         .max_outstanding = room,
                                                         .max_write_bytes = (nics - i) << 20});
      manual.push_back(made.get());
      list.push_back({std::move(made), "nic" + std::to_string(i), {static_cast<int>(i), 64}});
    }
    transport =
        make_striped_transport({.rank = Rank{0}, .ranks = 4, .peers = {Rank{1}, Rank{2}, Rank{3}}}, std::move(list));
  }

  static WriteRequest data(int32_t peer, uint64_t id) {
    return {.kind = RequestKind::write_with_immediate, .peer = Rank{peer}, .bytes = 64, .id = id};
  }
  static WriteRequest signal(int32_t peer, uint64_t id) {
    return {.kind = RequestKind::write_with_immediate, .peer = Rank{peer}, .id = id};
  }
  // Addresses of four ranks with so many NICs.
  std::vector<std::vector<std::byte>> addresses(const std::vector<size_t>& counts) const {
    std::vector<std::vector<std::byte>> all;
    for (const size_t count : counts) all.push_back(Rig(count).transport->address());
    return all;
  }

  std::vector<ManualTransport*> manual;
  std::unique_ptr<Transport> transport;
};

TEST(Striped, ChunksAndSignalsToEachPeerAreDealtEvenlyHoweverTheyAreMixed) {
  Rig rig(4);
  std::vector<WriteRequest> requests;
  for (uint64_t i = 0; i < 240; ++i) {
    requests.push_back(Rig::data(1 + static_cast<int32_t>(i % 3), 2 * i));
    requests.push_back(Rig::signal(1, 2 * i + 1));  // one behind each chunk
  }
  ASSERT_EQ(rig.transport->post(requests), requests.size());
  for (const ManualTransport* nic : rig.manual) {
    std::array<size_t, 4> chunks{}, signals{};
    for (const WriteRequest& request : nic->posted) {
      ++(request.is_control() ? signals : chunks)[static_cast<size_t>(request.peer.value)];
    }
    EXPECT_EQ(chunks, (std::array<size_t, 4>{0, 20, 20, 20}));
    EXPECT_EQ(signals, (std::array<size_t, 4>{0, 60, 0, 0}));
  }
  // Peers begin with different NICs, so that the first chunks of a call do not meet on one.
  for (const ManualTransport* nic : rig.manual) {
    size_t firsts = 0;
    for (const WriteRequest& request : nic->posted) firsts += request.id == 0 || request.id == 2 || request.id == 4;
    EXPECT_LE(firsts, 1u);
  }
}

TEST(Striped, AFullNicKeepsItsOwnWaitingAndThenIsBackPressureAndNothingIsLostOrDoubled) {
  Rig rig(2);
  rig.manual[0]->room = 10;
  rig.manual[1]->room = 1000;
  std::vector<WriteRequest> requests;
  for (uint64_t i = 0; i < 400; ++i) requests.push_back(Rig::data(1, i));
  const size_t first = rig.transport->post(requests);
  EXPECT_LT(first, requests.size());
  EXPECT_GE(rig.manual[1]->posted.size(), 64u) << "the other NIC goes on meanwhile";
  EXPECT_EQ(rig.manual[0]->posted.size(), 10u);
  EXPECT_EQ(rig.transport->post(std::span(requests).subspan(first)), 0u);
  EXPECT_EQ(rig.transport->idle_hint(), std::chrono::nanoseconds::zero()) << "somebody has to come back for those";
  rig.manual[0]->room = 1000;
  std::array<Event, 4> events;
  rig.transport->poll(events);
  EXPECT_GT(rig.manual[0]->posted.size(), 10u) << "a look posts what waits";
  EXPECT_EQ(rig.transport->post(std::span(requests).subspan(first)), requests.size() - first);
  std::vector<bool> seen(requests.size(), false);
  for (const ManualTransport* nic : rig.manual) {
    EXPECT_EQ(nic->posted.size(), 200u);
    for (const WriteRequest& request : nic->posted) {
      EXPECT_FALSE(seen[request.id]);
      seen[request.id] = true;
    }
  }
}

TEST(Striped, APeerThatTakesNothingOnANicHoldsUpNoOtherThere) {
  Rig rig(2);
  for (ManualTransport* nic : rig.manual) nic->full_peer = Rank{1};
  const std::vector<WriteRequest> to_full(300, Rig::data(1, 1)), to_other(100, Rig::data(2, 2));
  const size_t taken = rig.transport->post(to_full);
  EXPECT_LT(taken, to_full.size());
  EXPECT_EQ(rig.transport->post(to_other), to_other.size());
  for (ManualTransport* nic : rig.manual) {
    EXPECT_EQ(nic->posted.size(), 50u);
    nic->full_peer.reset();
  }
  std::array<Event, 4> events;
  rig.transport->poll(events);
  EXPECT_EQ(rig.manual[0]->posted.size() + rig.manual[1]->posted.size(), taken + to_other.size());
}

TEST(Striped, AFailureNamesItsNic) {
  Rig rig(3);
  rig.manual[1]->to_report.push_back({.kind = EventKind::failed, .peer = Rank{2}, .id = 5, .status = 12});
  std::array<Event, 4> events;
  size_t count = 0;
  for (int i = 0; i < 3 && count == 0; ++i) count = rig.transport->poll(events);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(events[0].status, 12);
  EXPECT_EQ(rig.transport->describe_failure(events[0]), "NIC 2 of 3, nic1: retries exceeded");
}

TEST(Striped, EventsOfAllNicsComeHoweverFewAreTakenAtATime) {
  Rig rig(3);
  for (uint64_t i = 0; i < 30; ++i) rig.manual[i % 3]->to_report.push_back({.peer = Rank{1}, .id = i});
  std::vector<int> seen(30, 0);
  std::array<Event, 1> one;
  std::array<size_t, 3> first{};
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(rig.transport->poll(one), 1u);
    ++seen[one[0].id];
    if (i < 3) ++first[one[0].nic];
  }
  EXPECT_EQ(seen, std::vector<int>(30, 1));
  EXPECT_EQ(first, (std::array<size_t, 3>{1, 1, 1})) << "a busy NIC keeps the others waiting";
}

TEST(Striped, WithFewerNicsOnOneRankAllUseAsManyAndSayWhoHasFewest) {
  Rig rig(4);
  std::vector<std::string> lines;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  rig.transport->connect(rig.addresses({4, 4, 3, 4}), std::chrono::seconds(1));
  set_log_sink(before);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("rank 2 has 3 NICs for this job, so 1 of this rank stay without use: nic3"),
            std::string::npos)
      << lines[0];
  EXPECT_EQ(rig.transport->caps().max_outstanding, 3000u);
  std::vector<WriteRequest> requests(9, Rig::data(3, 1));
  EXPECT_EQ(rig.transport->post(requests), 9u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rig.manual[i]->posted.size(), 3u);
}

TEST(Striped, WhatIsSaidToOneNicReachesThatNicOfThePeerAlone) {
  Rig rig(3);
  std::vector<std::vector<std::byte>> keys(4);
  for (size_t i = 0; i < 3; ++i) rig.manual[i]->own_keys = {std::byte(10 + i)};
  keys[2] = rig.transport->new_keys();
  rig.transport->learn_keys(keys);
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(rig.manual[i]->learnt.size(), 4u);
    EXPECT_EQ(rig.manual[i]->learnt[2], (std::vector<std::byte>{std::byte(10 + i)}));
    EXPECT_TRUE(rig.manual[i]->learnt[1].empty());
  }
}

TEST(Striped, AnAddressOfAnotherTransportIsRefusedByItsRank) {
  Rig rig(2);
  std::vector<std::vector<std::byte>> addresses = rig.addresses({2, 2, 2, 2});
  addresses[2].assign(40, std::byte{1});
  const Error error = error_of([&] { rig.transport->connect(addresses, std::chrono::seconds(1)); });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch);
  EXPECT_SAYS(error, "peer = 2");
}

TEST(Striped, TheLongestRequestIsThatOfTheNicThatTakesLeastAndProcessorsAreThoseOfAll) {
  Rig rig(3);
  EXPECT_EQ(rig.transport->caps().max_write_bytes, 1u << 20);
  EXPECT_EQ(rig.transport->near_processors(), (std::vector<int>{0, 1, 2, 64}));
}

TEST(Striped, WordsBehindTheirDataAreNotDealtOverSeveral) {
  for (const bool is_ordered : {true, false}) {  // behind it in order, or behind its acknowledgement
    const auto make = [is_ordered](size_t count) {
      std::vector<StripedNic> nics;
      for (size_t i = 0; i < count; ++i) {
        const Caps caps{.name = "manual", .ordered_writes = is_ordered, .value_writes = true};
        nics.push_back({std::make_unique<ManualTransport>(caps), "nic", {}});
      }
      return make_striped_transport({.rank = Rank{0}, .ranks = 2, .peers = {Rank{1}}}, std::move(nics));
    };
    EXPECT_EQ(make(1)->caps().ordered_writes, is_ordered);
    EXPECT_SAYS(error_of([&] { make(2); }), "need one NIC");
  }
}

}  // namespace
}  // namespace tilewire

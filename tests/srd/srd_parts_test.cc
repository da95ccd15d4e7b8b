// The parts of the SRD transport that stand alone: every field of what it sends, and how much of a device a session takes.
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <map>
#include <set>

#include "transport/error_text.h"
#include "transport/srd/address.h"
#include "transport/srd/flights.h"
#include "transport/srd/queue.h"
#include "transport/srd/srd_port.h"
#include "transport/verbs/credits.h"

namespace tilewire {
namespace {

using namespace verbs;

TEST(SrdAddress, ComesBackAsItWasAndNothingElseIsOne) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    const auto narrow = static_cast<uint32_t>(value);
    const SrdAddress address{.is_unsolicited = value != 0,
                             .gid = {0xfe, 0x80, static_cast<uint8_t>(value)},
                             .port = value == 0 ? "" : "rdmap0s6:1",
                             .qkey = narrow,
                             .arena = value,
                             .keys = {{value, value, narrow}},
                             .scratch = value,
                             .scratch_key = narrow,
                             .credits = narrow,
                             .queues = std::vector<uint32_t>(value == 0 ? 0 : 16, narrow),
                             .report_queue = narrow};
    const Bytes bytes = address.pack();
    EXPECT_TRUE(SrdAddress::unpack(Rank{0}, bytes) == address) << value;
    EXPECT_TRUE(unpack_keys(pack_keys(address.keys)) == address.keys) << value;
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_THROW(SrdAddress::unpack(Rank{0}, std::span(bytes).first(length)), Error) << length << " bytes";
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_THROW(SrdAddress::unpack(Rank{0}, longer), Error);
  }
  const Error other = error_of([] { SrdAddress::unpack(Rank{4}, Bytes(40, std::byte{1})); });
  EXPECT_EQ(other.kind(), ErrorKind::mismatch);
  EXPECT_SAYS(other, "peer = 4");
}

TEST(SrdReport, EveryFieldAtItsEdgesComesBackAndTheNextOneDoesNot) {
  for (const uint32_t channel : {0u, 1u, 15u, SrdReport::kChannels - 1, SrdReport::kChannels}) {
    for (const uint32_t taken : {0u, 1u, 32768u, SrdReport::kMost, SrdReport::kMost + 1}) {
      const SrdReport back = SrdReport::unpack(SrdReport{channel, taken}.pack());
      const bool fits = channel < SrdReport::kChannels && taken <= SrdReport::kMost;
      EXPECT_EQ(back.channel == channel && back.taken == taken, fits) << channel << ", " << taken;
    }
  }
}

TEST(SrdStatus, BothCodesComeBack) {
  for (const uint32_t vendor : {0u, 1u, 16u, 255u, 0x7fffffu}) {
    for (const abi::WcStatus status : {abi::kWcLocLenErr, abi::kWcRespTimeoutErr, static_cast<abi::WcStatus>(255)}) {
      const int32_t packed = srd_status(status, vendor);
      EXPECT_GT(packed, 0);
      EXPECT_EQ(srd_wc_status(packed), status);
      EXPECT_EQ(srd_vendor_code(packed), vendor);
    }
  }
}

TEST(SrdSource, QueuePairsOfTwoDevicesWithOneNumberDiffer) {
  std::set<uint64_t> seen;
  for (const uint32_t handle : {0u, 1u, 0xffffu}) {
    for (const uint32_t queue : {0u, 1u, 0xffffffu}) EXPECT_TRUE(seen.insert(srd_source(handle, queue)).second);
  }
}

TEST(SrdFlights, NumbersAreGivenOnceAndReservedEntriesAreKept) {
  SrdFlights flights(4);
  flights.reserve();
  EXPECT_EQ(flights.room(), 3u);
  std::set<uint32_t> numbers;
  for (uint64_t id = 10; id < 13; ++id) numbers.insert(flights.take({id, Rank{1}}));
  EXPECT_EQ(numbers.size(), 3u);
  EXPECT_EQ(flights.room(), 0u);
  flights.unreserve();
  const uint32_t last = flights.take({13, Rank{1}});
  EXPECT_TRUE(numbers.insert(last).second);
  EXPECT_TRUE(flights.has(SrdFlightKind::whole, Rank{1}));
  EXPECT_FALSE(flights.has(SrdFlightKind::probe, Rank{1}));
  for (const uint32_t number : numbers) EXPECT_EQ(flights.give_back(number).peer, Rank{1});
  EXPECT_FALSE(flights.has(SrdFlightKind::whole, Rank{1}));
}

TEST(Credits, ASenderNeverHasMoreUnderWayThanMayWaitAndHearsInTime) {
  for (const uint64_t most : {uint64_t{1}, uint64_t{4}, uint64_t{19}, uint64_t{256}}) {
    SendCredits sender(most);
    TakenCount receiver(most);
    uint64_t waiting = 0;
    for (int step = 0; step < 2000; ++step) {
      if (step % 3 != 2) {
        if (sender.has_room()) sender.use(), ++waiting;
      } else if (waiting > 0) {
        --waiting;
        receiver.add();
        if (receiver.has_just_to_be_told()) {
          sender.add_taken(receiver.untold());
          receiver.tell();
        }
      }
      ASSERT_LE(waiting, most);
      ASSERT_LE(sender.under_way(), most);
      // One that has taken all it got has told enough of it that its sender can go on.
      ASSERT_TRUE(waiting > 0 || sender.has_room()) << most;
    }
  }
}

SrdPort port_of_a_device() {
  SrdPort port;
  port.port.name = "efa0:1";
  port.port.peers_of_users = {63};
  port.port.device.max_qp = 256;
  port.port.device.max_cqe = 32768;
  port.efa.max_sq_wr = 4096;
  port.efa.max_rq_wr = 32768;
  port.efa.device_caps = abi::kEfaCapRdmaWrite | abi::kEfaCapUnsolicitedWriteRecv;
  return port;
}

const TransportContext kOf64{.rank = Rank{0}, .peers = std::vector<Rank>(63)};

// Queue pairs grow with channels and not with ranks.
TEST(SrdNeeds, OfSixtyFourRanksAndSixteenChannelsFitADevice) {
  const SrdPort port = port_of_a_device();
  SrdOptions options;
  options.channels = 16;
  const SrdNeeds needs = srd_needs(port, options, kOf64, "rank 0");
  EXPECT_TRUE(needs.is_unsolicited);
  EXPECT_EQ(needs.queues, 17u);
  EXPECT_EQ(needs.credits, 256u);
  EXPECT_EQ(needs.receive_entries, 63u * 256);
  EXPECT_EQ(needs.report_receive_entries, 63u * 16 * 6);
}

TEST(SrdNeeds, FewerImmediatesOfEachPeerWaitWhereTheDeviceHoldsFewer) {
  SrdPort port = port_of_a_device();
  port.efa.max_rq_wr = 2048;
  SrdOptions options;
  EXPECT_EQ(srd_needs(port, options, kOf64, "").credits, 256u) << "without receives";
  options.unsolicited = SrdUnsolicited::off;
  EXPECT_EQ(srd_needs(port, options, kOf64, "").credits, 2048u / 63);
  port.port.device.max_cqe = 1024;
  options.unsolicited = SrdUnsolicited::on;
  EXPECT_EQ(srd_needs(port, options, kOf64, "").credits, 16u);
}

TEST(SrdNeeds, WhatADeviceHasTooFewOfIsNamedWithTheCounts) {
  const auto expect = [](const char* what, const char* values, const SrdPort& port, const SrdOptions& options) {
    const Error error = error_of([&] { srd_needs(port, options, kOf64, "srd transport of rank 5"); });
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_SAYS(error, what);
    EXPECT_SAYS(error, values);
    EXPECT_SAYS(error, "rank 5");
  };
  SrdOptions options;
  options.unsolicited = SrdUnsolicited::off;
  SrdPort port = port_of_a_device();
  port.port.device.max_qp = 1;
  expect("too few queue pairs", "needed = 2: 63 peers, 1 channels", port, options);
  port = port_of_a_device();
  port.efa.max_sq_wr = 255;
  expect("too few entries of a send queue", "needed = 256", port, options);
  port = port_of_a_device();
  port.efa.max_rq_wr = 1007;
  expect("too few entries of a receive queue", "needed = 1008: 63 peers, 1 channels, 256 send entries, 16 immediates",
         port, options);
  port = port_of_a_device();
  port.port.device.max_cqe = 1007;
  expect("too few entries of a completion queue", "needed = 1008", port, options);
}

}  // namespace
}  // namespace tilewire

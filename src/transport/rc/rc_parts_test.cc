// The parts of the RC transport that stand alone.
#include <gtest/gtest.h>
#include <tilewire/error.h>
#include <tilewire/options.h>

#include <atomic>
#include <thread>

#include "transport/error_text.h"
#include "transport/rc/address.h"
#include "transport/rc/rc_options.h"
#include "transport/rc/rc_port.h"
#include "transport/verbs/fake_device.h"
#include "transport/verbs/gid_choice.h"
#include "transport/verbs/handles.h"
#include "transport/verbs/memory.h"

namespace tilewire {
namespace {

using namespace verbs;

constexpr abi::Gid kLinkLocal{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1};
constexpr abi::Gid kGlobal{0x20, 0x01, 0x0d, 0xb8};
constexpr abi::Gid kIpv4{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
constexpr abi::Gid kEmpty{};

TEST(GidChoice, TakesRoceV2OfAnIpv4AddressWhereverItStands) {
  const GidChoice choice = choose_gid({{0, kLinkLocal, abi::kGidRoceV1},
                                       {1, kLinkLocal, abi::kGidRoceV2},
                                       {2, kIpv4, abi::kGidRoceV1},
                                       {3, kGlobal, abi::kGidRoceV2},
                                       {4, kIpv4, abi::kGidRoceV2}},
                                      -1);
  EXPECT_EQ(choice.index, 4);
  EXPECT_EQ(choice.warning, "");
  EXPECT_EQ(choice.text, "GID 4 (::ffff:10.77.0.1, RoCE v2)");
}

TEST(GidChoice, NeverTakesALinkLocalOrV1EntrySilently) {
  const GidChoice link = choose_gid({{0, kLinkLocal, abi::kGidRoceV1}, {1, kLinkLocal, abi::kGidRoceV2}}, -1);
  EXPECT_EQ(link.index, 1);
  EXPECT_NE(link.warning, "");
  const GidChoice v1 = choose_gid({{0, kLinkLocal, abi::kGidRoceV2}, {1, kIpv4, abi::kGidRoceV1}}, -1);
  EXPECT_EQ(v1.index, 1);
  EXPECT_NE(v1.warning, "");
  EXPECT_EQ(choose_gid({{0, kLinkLocal, abi::kGidRoceV2}, {1, kGlobal, abi::kGidRoceV2}}, -1).warning, "");
}

TEST(GidChoice, NeverTakesAnEmptyOrUnreadableEntryNotEvenWhenAskedFor) {
  const std::vector<GidRow> table{{0, kEmpty, abi::kGidRoceV2}, {1, kIpv4, abi::kGidRoceV2, false}};
  EXPECT_EQ(choose_gid(table, -1).index, -1);
  EXPECT_EQ(choose_gid(table, 0).index, -1);
  const GidChoice asked = choose_gid(table, 1);
  EXPECT_EQ(asked.index, -1);
  EXPECT_EQ(asked.text, "GID 1 cannot be used; there is: GID 1 (unreadable)");
  EXPECT_EQ(choose_gid({}, -1).text, "no GID can be used; there is: the GID table is empty");
}

TEST(KeyTable, FindsTheRangeOfEveryByteAndNoOther) {
  verbs::KeyTable table;
  EXPECT_EQ(table.find(0), nullptr);
  table.add({8192, 12288, 3});
  table.add({0, 4096, 1});
  table.add({4096, 8192, 2});
  EXPECT_EQ(table.find(0)->key, 1u);
  EXPECT_EQ(table.find(4095)->key, 1u);
  EXPECT_EQ(table.find(4096)->key, 2u);
  EXPECT_EQ(table.find(12287)->key, 3u);
  EXPECT_EQ(table.find(12288), nullptr);
  verbs::KeyTable late;
  late.add({100, 200, 1});
  EXPECT_EQ(late.find(99), nullptr);
}

TEST(KeyTable, WhatIsTakenOutIsNotFoundAndItsNeighboursAre) {
  verbs::KeyTable table;
  for (const uint32_t key : {1u, 2u, 3u}) table.add({key * 4096, key * 4096 + 4096, key});
  EXPECT_EQ(table.remove(2 * 4096), 2u);
  EXPECT_EQ(table.find(2 * 4096), nullptr);
  EXPECT_EQ(table.find(2 * 4096 - 1)->key, 1u);
  EXPECT_EQ(table.find(3 * 4096)->key, 3u);
}

TEST(KeyTable, ReadersNeverMissWhatWasThereWhileMoreComes) {
  constexpr uint64_t kKeys = 500;
  verbs::KeyTable table;
  std::atomic<uint64_t> added{0};
  std::thread reader([&] {
    for (uint64_t there = 0; there < kKeys;) {
      there = added.load(std::memory_order_acquire);
      for (uint64_t i = 0; i < there; i += 1 + there / 8) {
        const verbs::MemoryKey* key = table.find(i * 10);
        ASSERT_NE(key, nullptr) << i << " of " << there;
        ASSERT_EQ(key->key, i);
      }
    }
  });
  for (uint64_t i = 0; i < kKeys; ++i) {
    table.add({i * 10, i * 10 + 10, static_cast<uint32_t>(i)});
    added.store(i + 1, std::memory_order_release);
  }
  reader.join();
}

TEST(RcAddress, ComesBackAsItWasAndNothingElseIsOne) {
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    const auto narrow = static_cast<uint32_t>(value);
    const auto positive = static_cast<int32_t>(narrow >> 1);
    const RcAddress address{
        .signal = value == 0 ? RcSignal::immediate : RcSignal::completion,
        .channels = positive,
        .link_layer = static_cast<abi::LinkLayer>(static_cast<uint8_t>(value)),
        .mtu = value == 0 ? abi::kMtu256 : abi::kMtu4096,
        .lid = static_cast<uint16_t>(value),
        .gid = value == 0 ? kEmpty : kIpv4,
        .port = value == 0 ? "" : "mlx5_0:1",
        .arena = value,
        .keys = {{value, value, narrow}},
        .scratch_key = narrow,
        .receive_entries = narrow,
        .queues = std::vector<RcQueueEnd>(value == 0 ? 0 : 16, {Rank{positive}, positive, narrow, narrow, value})};
    const Bytes bytes = address.pack();
    EXPECT_TRUE(RcAddress::unpack(Rank{0}, bytes) == address) << value;
    EXPECT_TRUE(unpack_keys(pack_keys(address.keys)) == address.keys) << value;
    for (size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_THROW(RcAddress::unpack(Rank{0}, std::span(bytes).first(length)), Error) << length << " bytes";
    }
    Bytes longer = bytes;
    longer.push_back(std::byte{0});
    EXPECT_THROW(RcAddress::unpack(Rank{0}, longer), Error);
  }
  const Error other = error_of([] { RcAddress::unpack(Rank{4}, Bytes(40, std::byte{1})); });
  EXPECT_EQ(other.kind(), ErrorKind::mismatch);
  EXPECT_SAYS(other, "peer = 4");
}

TEST(VerbsTable, SaysWhichLibraryIsNotThereAndWhichFunctionIsMissing) {
  const Error absent = error_of([] { load_verbs("libno-such-verbs.so.1"); });
  EXPECT_EQ(absent.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(absent, "libno-such-verbs.so.1");
  EXPECT_SAYS(absent, "TILEWIRE_VERBS_LIBRARY");
  const Error other = error_of([] { load_verbs("libm.so.6"); });
  EXPECT_EQ(other.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(other, "ibv_get_device_list");
}

TEST(VerbsHandle, FreesOnceAndIsEmptyWhenMovedFrom) {
  FakeDevice device;
  const Verbs verbs = device.table();
  {
    Pd first(verbs, verbs.alloc_pd(nullptr));
    Pd second = std::move(first);
    EXPECT_FALSE(first);
    EXPECT_EQ(device.held, 1);
    second = Pd(verbs, verbs.alloc_pd(nullptr));
    EXPECT_EQ(device.held, 1);
  }
  EXPECT_EQ(device.held, 0);
}

TEST(RcOptions, WordsBehindTheirDataNeedOneQueueAndStrictMemory) {
  Options options;
  options.rc_signal = "ordered";
  EXPECT_EQ(rc_options(options).signal, RcSignal::ordered);
  options.rc_channels = 2;
  EXPECT_THROW(rc_options(options), Error);
  options.rc_channels = 1;
  options.rc_relaxed_ordering = 1;
  EXPECT_THROW(rc_options(options), Error);
}

// The data of a word that leaves by another NIC may still be on its way into memory there, acknowledged or not.
TEST(RcOptions, WordsBehindAnAcknowledgementNeedOneNicAndTakeOneWhereNoneIsAskedFor) {
  Options options;
  for (const char* signal : {"ordered", "completion"}) {
    options.rc_signal = signal;
    options.nics = 2;
    const Error error = error_of([&] { rc_options(options); });
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
    EXPECT_SAYS(error, "nics = 2");
    for (const int nics : {0, 1}) {
      options.nics = nics;
      EXPECT_EQ(rc_port_wish(rc_options(options)).nics, 1);
    }
  }
  options.rc_signal = "immediate";
  options.nics = 2;
  EXPECT_EQ(rc_port_wish(rc_options(options)).nics, 2);
}

}  // namespace
}  // namespace tilewire

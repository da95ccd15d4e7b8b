// What the RC transport does before it carries anything: which port it takes, what it says when none fits, and that
// nothing is left of an attempt that failed. What it carries is tested over soft-RoCE (tests/rdma).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <map>

#include "base/log.h"
#include "transport/error_text.h"
#include "transport/rc/address.h"
#include "transport/rc/queue.h"
#include "transport/rc/rc_fixture.h"

namespace tilewire {
namespace {

using namespace verbs;
using std::chrono::milliseconds;

constexpr abi::Gid kGlobal{0x20, 0x01, 0x0d, 0xb8};

TEST_F(RcSetup, NoDeviceIsSaid) {
  device_.ports.clear();
  const Error error = error_of([&] { make(); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(error, "there is no RDMA device");
}

TEST_F(RcSetup, EachPortThatCannotBeUsedIsNamedWithItsReason) {
  device_.ports[0].attr.state = abi::kPortDown;
  device_.ports[1].gids.clear();
  const Error error = error_of([&] { make(); });
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(error, "nic0:1: the port is down");
  EXPECT_SAYS(error, "nic1:1: no GID can be used; there is: the GID table is empty");
  EXPECT_EQ(device_.held, 0);
}

TEST_F(RcSetup, AnUnreadableGidTableIsNoReasonToTakeAnEntryBlindly) {
  device_.ports.resize(1);
  device_.ports[0].unreadable = {0, 1};
  EXPECT_SAYS(error_of([&] { make(); }), "GID 0 (unreadable), GID 1 (unreadable)");
}

TEST_F(RcSetup, ADeviceThatIsNotThereIsRefusedByName) {
  options_.device = "mlx5_7";
  const Error error = error_of([&] { make(); });
  EXPECT_SAYS(error, "rc_device = mlx5_7");
  EXPECT_SAYS(error, "nic0:1: can be used");
}

TEST_F(RcSetup, RanksOfANodeTakeWorkingPortsInTurn) {
  device_.ports.insert(device_.ports.begin() + 1, FakeDevice::port("down"));
  device_.ports[1].attr.state = abi::kPortDown;
  const Verbs verbs = device_.table();
  EXPECT_EQ(open_port(verbs, rc_port_wish(options_), {.rank = Rank{0}, .local = 0}).name, "nic0:1");
  EXPECT_EQ(open_port(verbs, rc_port_wish(options_), {.rank = Rank{0}, .local = 1}).name, "nic1:1");
  EXPECT_EQ(open_port(verbs, rc_port_wish(options_), {.rank = Rank{0}, .local = 2}).name, "nic0:1");
  options_.device = "nic1";
  EXPECT_EQ(open_port(verbs, rc_port_wish(options_), {.rank = Rank{0}, .local = 0}).name, "nic1:1");
}

TEST_F(RcSetup, SeveralNamesAreTakenInTheirOrderAndEachHasToBeThere) {
  device_.ports.push_back(FakeDevice::port("nic2"));
  const Verbs verbs = device_.table();
  const auto names = [&](const char* device, const TransportContext& context) {
    options_.device = device;
    std::vector<std::string> taken;
    for (const Port& port : open_ports(verbs, rc_port_wish(options_), context)) taken.push_back(port.name);
    return taken;
  };
  using Names = std::vector<std::string>;
  const TransportContext alone{.rank = Rank{0}, .host_ranks = {{}}};
  EXPECT_EQ(names("nic2,nic0:1,nic1", alone), (Names{"nic2:1", "nic0:1", "nic1:1"}));
  EXPECT_EQ(names("nic1,nic0,nic1:1", alone), (Names{"nic1:1", "nic0:1"})) << "a port is one NIC, however often named";
  EXPECT_EQ(names("nic2,nic1,nic0", {.rank = Rank{1}, .host_ranks = {{}, {}, {}}, .host_index = 1}), (Names{"nic1:1"}));
  options_.nics = 2;
  EXPECT_EQ(names("nic2,nic0", {.rank = Rank{0}, .local = 0}), (Names{"nic2:1", "nic0:1"}));
  const Error missing = error_of([&] { names("nic2,nic7,nic0", alone); });
  EXPECT_EQ(missing.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(missing, "cannot be used: nic7");
  device_.ports[0].attr.state = abi::kPortDown;
  EXPECT_SAYS(error_of([&] { names("nic2,nic0", alone); }), "nic0:1: the port is down");
}

// A path whose ends send longer packets than the other one takes carries nothing.
TEST_F(RcSetup, AShorterMtuOnOneRankAloneIsThatOfBothEnds) {
  const auto path_mtu = [&](int own_bytes, abi::Mtu peer) {
    options_.mtu_bytes = own_bytes;
    const auto transport = make(1);
    RcAddress address = address_of(Rank{1});
    address.mtu = peer;
    const std::vector<Bytes> addresses{{}, address.pack()};
    transport->connect(addresses, milliseconds(1));
    return std::pair(RcAddress::unpack(Rank{0}, transport->address()).mtu, device_.last_path.path_mtu);
  };
  EXPECT_EQ(path_mtu(0, abi::kMtu4096), std::pair(abi::kMtu4096, abi::kMtu4096));
  EXPECT_EQ(path_mtu(1024, abi::kMtu4096), std::pair(abi::kMtu1024, abi::kMtu1024));
  EXPECT_EQ(path_mtu(0, abi::kMtu1024), std::pair(abi::kMtu4096, abi::kMtu1024));
  EXPECT_EQ(path_mtu(2048, abi::kMtu1024), std::pair(abi::kMtu2048, abi::kMtu1024));
}

TEST_F(RcSetup, APathMtuAboveThePortsIsRefused) {
  options_.mtu_bytes = 4096;
  device_.ports.resize(1);
  device_.ports[0].attr.active_mtu = abi::kMtu1024;
  EXPECT_SAYS(error_of([&] { make(); }), "the path MTU asked for is 4096, that of the port 1024");
}

TEST_F(RcSetup, CountsAreCheckedBeforeAnythingIsMade) {
  const auto expect = [&](const char* what, const char* values) {
    const Error error = error_of([&] { make(); });
    EXPECT_EQ(error.kind(), ErrorKind::resource);
    EXPECT_SAYS(error, what);
    EXPECT_SAYS(error, values);
    EXPECT_EQ(device_.held, 0);
  };
  device_.attr.max_cqe = 2 * static_cast<int>(256 + RcQueue::kOwnEntries + 512) - 1;
  expect("too few entries of a completion queue", "needed = 1552: 2 peers, 1 channels, 256 send and 512 receive");
  device_.attr.max_qp = 1;
  expect("too few queue pairs", "needed = 2");
  device_.attr.max_qp = 1024;
  device_.attr.max_qp_wr = 263;
  expect("too few entries of a send queue", "needed = 264");
}

// What a session takes is what was counted before: a device that has just so much is enough, and one that has one less
// of anything is refused by that name, before anything is made. A job of 64 ranks with 16 channels, too, and several
// ranks on one device.
TEST_F(RcSetup, WhatASessionTakesOfADeviceIsCountedForAllRanksOnIt) {
  struct Case {
    int32_t peers, channels;
    size_t ranks;
  };
  for (const Case& c : {Case{1, 1, 1}, Case{7, 3, 2}, Case{63, 16, 1}, Case{56, 16, 8}}) {
    FakeDevice device;
    device.ports = {FakeDevice::port("nic0")};
    device.attr.max_qp = 1 << 20;
    options_.channels = c.channels;
    TransportContext context = context_of(c.peers);
    context.host_ranks.assign(c.ranks, {.peers = static_cast<size_t>(c.peers)});
    context.arena_pieces = 3;
    const Verbs verbs = device.table();
    const auto begin = [&] {
      const auto transport = make_one(context, options_, verbs);
      for (uint64_t i = 0; i < context.arena_pieces; ++i) transport->register_arena(2 * i * kPage, kPage);
    };
    begin();
    const auto made = [&](const char* call) { return device.made[call] * static_cast<int>(c.ranks); };
    EXPECT_EQ(device.made["create_qp"], c.peers * c.channels);
    const abi::DeviceAttr plenty = device.attr;
    const std::pair<const char*, std::pair<int*, const char*>> limits[] = {
        {"create_qp", {&device.attr.max_qp, "too few queue pairs"}},
        {"create_cq", {&device.attr.max_cq, "too few completion queues"}},
        {"reg_mr", {&device.attr.max_mr, "too few memory regions"}},
        {"alloc_pd", {&device.attr.max_pd, "too few protection domains"}}};
    std::vector<int> needed;
    for (const auto& [call, limit] : limits) needed.push_back(made(call));
    for (size_t i = 0; i < std::size(limits); ++i) *limits[i].second.first = needed[i];
    EXPECT_NO_THROW(begin());
    for (size_t i = 0; i < std::size(limits); ++i) {
      if (needed[i] == 1) continue;  // none at all is a device that does not say
      device.attr = plenty;
      *limits[i].second.first = needed[i] - 1;
      device.made.clear();
      const Error error = error_of(begin);
      EXPECT_EQ(error.kind(), ErrorKind::resource);
      EXPECT_SAYS(error, limits[i].second.second);
      EXPECT_SAYS(error, fmt::format("needed = {}: {}", needed[i], c.peers));
      if (c.ranks > 1) {
        EXPECT_SAYS(error, "peers of those on this host that share it");
      }
      EXPECT_EQ(device.made["create_qp"] + device.made["create_cq"] + device.made["reg_mr"], 0);
    }
    EXPECT_EQ(device.held, 0);
  }
}

// With 2 peers and 2 channels, of which each queue pair is brought to three states, and 5 ranges beside the transport's own.
TEST_F(RcSetup, NothingIsLeftWhicheverStepOfTheCreationFails) {
  options_.inline_bytes = 0;  // else a refused queue pair is asked for again without
  options_.channels = 2;
  constexpr uint64_t kRanges = 5;
  const std::map<std::string, int> calls{{"alloc_pd", 1},  {"create_cq", 1}, {"reg_mr", 1 + kRanges},
                                         {"create_qp", 4}, {"post_recv", 4}, {"modify_qp", 12}};
  for (const auto& [call, count] : calls) {
    for (int number = 0; number <= count; ++number) {
      FakeDevice fresh;
      fresh.ports = device_.ports;
      fresh.refusals = {{call, number}};
      const Verbs verbs = fresh.table();
      const TransportContext context{.rank = Rank{0},
                                     .ranks = 3,
                                     .peers = {Rank{1}, Rank{2}},
                                     .arena = arena_.data(),
                                     .arena_bytes = arena_.size()};
      const Error error = error_of([&] {
        const auto transport = make_one(context, options_, verbs);
        for (uint64_t i = 0; i < kRanges; ++i) transport->register_arena(i * kPage, kPage);
        const std::vector<Bytes> addresses{{}, address_of(Rank{1}).pack(), address_of(Rank{2}).pack()};
        transport->connect(addresses, milliseconds(1));
        EXPECT_EQ(fresh.held, 1 + 1 + 1 + 6 + 4) << "device, domain, completion queue, ranges, queue pairs";
        throw Error(ErrorKind::closed, {.what = "all went well"});
      });
      const bool is_refused = error.kind() == ErrorKind::resource || error.kind() == ErrorKind::unavailable;
      EXPECT_EQ(is_refused, number < count) << call << " number " << number << ": " << error.what();
      EXPECT_EQ(error.kind() == ErrorKind::closed, number == count) << call << " number " << number;
      EXPECT_EQ(fresh.held, 0) << call << " number " << number << ": " << error.what();
    }
  }
}

TEST_F(RcSetup, WhicheverRegistrationOverTwoNicsFailsAllIsUndone) {
  options_.nics = 2;
  constexpr int kRanges = 5, kRegistrations = 2 * (1 + kRanges);
  for (int number = 0; number <= kRegistrations; ++number) {
    FakeDevice fresh;
    fresh.ports = device_.ports;
    fresh.refusals = {{"reg_mr", number}};
    const Verbs verbs = fresh.table();
    const TransportContext context{
        .rank = Rank{0}, .ranks = 2, .peers = {Rank{1}}, .arena = arena_.data(), .arena_bytes = arena_.size()};
    const Error error = error_of([&] {
      const auto transport = make_rc_transport(context, options_, verbs);
      for (uint64_t i = 0; i < kRanges; ++i) transport->register_arena(i * kPage, kPage);
      EXPECT_EQ(number, kRegistrations) << "registration " << number << " of two NICs was not tried";
      throw Error(ErrorKind::closed, {.what = "all went well"});
    });
    EXPECT_EQ(error.kind(), number < kRegistrations ? ErrorKind::resource : ErrorKind::closed) << error.what();
    EXPECT_EQ(fresh.held, 0) << "registration " << number;
  }
}

// Who asks again gets one key of it from each NIC.
TEST_F(RcSetup, ARangeThatOneOfTwoNicsRefusesIsNobodysAndIsThereWhenItIsAskedForAgain) {
  options_.nics = 2;
  device_.refusals = {{"reg_mr", 5}};  // two are the transports' own, two of the first range, one of the second
  const Verbs verbs = device_.table();
  const auto transport = make_rc_transport(context_of(1), options_, verbs);
  transport->register_arena(0, kPage);
  transport->new_keys();
  const int held = device_.held;
  const Bytes no_keys = transport->new_keys();
  EXPECT_EQ(error_of([&] { transport->register_arena(kPage, kPage); }).kind(), ErrorKind::resource);
  EXPECT_EQ(device_.held, held);
  EXPECT_EQ(transport->new_keys(), no_keys) << "peers would write where nothing is";
  transport->register_arena(kPage, kPage);
  EXPECT_EQ(device_.held, held + 2);
  EXPECT_NE(transport->new_keys(), no_keys);
}

TEST_F(RcSetup, AFailedRegistrationNamesTheBytesAndTheLimitOnLockedMemory) {
  device_.refusals = {{"reg_mr", 2}};  // the first is the transport's own
  const auto transport = make();
  transport->register_arena(0, kPage);
  const Error error = error_of([&] { transport->register_arena(kPage, 3 * kPage); });
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_SAYS(error, "12288 bytes: Cannot allocate memory");
  EXPECT_SAYS(error, "ulimit -l");
  EXPECT_SAYS(error, "VmPin");
  EXPECT_SAYS(error, "rank 0");
}

TEST_F(RcSetup, QueuePairsGoBeforeWhatTheyUse) {
  make()->register_arena(0, kPage);
  const std::vector<std::string> expected{"qp", "qp", "cq", "mr", "mr", "pd", "device"};
  ASSERT_GE(device_.freed.size(), expected.size());
  // Ports that were looked at and not taken have gone before.
  EXPECT_TRUE(std::equal(expected.rbegin(), expected.rend(), device_.freed.rbegin()));
  EXPECT_EQ(device_.held, 0);
}

TEST_F(RcSetup, RanksThatDifferAreToldInWhat) {
  const auto transport = make(1);
  const auto expect = [&](const RcAddress& address, const char* text) {
    const std::vector<Bytes> addresses{{}, address.pack()};
    const Error error = error_of([&] { transport->connect(addresses, milliseconds(1)); });
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_SAYS(error, text);
  };
  RcAddress address = address_of(Rank{1});
  address.signal = RcSignal::completion;
  expect(address, "rc_signal = immediate here, completion there");
  address = address_of(Rank{1});
  address.channels = 2;
  expect(address, "rc_channels = 1 here, 2 there");
  address = address_of(Rank{1});
  address.link_layer = abi::kLinkInfiniband;
  expect(address, "different networks");
  address = address_of(Rank{1});
  address.queues[0].peer = Rank{7};
  expect(address, "rank 1 has no queue for this rank");
}

TEST_F(RcSetup, ATrafficClassIsForRoceAloneAndElsewhereAWarning) {
  for (const abi::LinkLayer network : {abi::kLinkEthernet, abi::kLinkInfiniband}) {
    for (const int traffic_class : {0, 104}) {
      for (const int level : {0, 3}) {
        const bool is_roce = network == abi::kLinkEthernet;
        device_.ports = {FakeDevice::port(fmt::format("nic{}{}{}", is_roce, traffic_class, level))};
        device_.ports[0].attr.link_layer = network;
        device_.ports[0].attr.lid = 3;
        options_.traffic_class = static_cast<uint8_t>(traffic_class);
        options_.service_level = static_cast<uint8_t>(level);
        std::vector<std::string> lines;
        const LogSink before = set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
        const auto transport = make(1);
        set_log_sink(before);
        RcAddress address = address_of(Rank{1});
        address.gid = kGlobal;  // of another subnet, so that InfiniBand has a global route too
        const std::vector<Bytes> addresses{{}, address.pack()};
        transport->connect(addresses, milliseconds(1));
        const abi::AhAttr& path = device_.last_path.ah_attr;
        EXPECT_EQ(path.is_global, 1);
        EXPECT_EQ(path.grh.traffic_class, is_roce ? traffic_class : 0);
        EXPECT_EQ(path.sl, level);
        EXPECT_EQ(lines.size(), !is_roce && traffic_class != 0 ? 1u : 0u);
        for (const std::string& line : lines) EXPECT_NE(line.find("rc_traffic_class = 104"), std::string::npos) << line;
      }
    }
  }
}

TEST_F(RcSetup, APathGoesByGidOnRoceAndByLidOnInfiniband) {
  options_.traffic_class = 104;
  options_.service_level = 3;
  {
    const auto transport = make(1);
    const std::vector<Bytes> addresses{{}, address_of(Rank{1}).pack()};
    transport->connect(addresses, milliseconds(1));
    EXPECT_EQ(device_.last_path.ah_attr.is_global, 1);
    EXPECT_EQ(device_.last_path.ah_attr.grh.sgid_index, 1);
    EXPECT_EQ(device_.last_path.ah_attr.grh.dgid, kRcPeerGid);
    EXPECT_EQ(device_.last_path.ah_attr.grh.traffic_class, 104);
    EXPECT_EQ(device_.last_path.ah_attr.sl, 3);
    EXPECT_EQ(device_.last_path.dest_qp_num, 1001u);
    EXPECT_EQ(device_.last_path.rq_psn, 5u);
  }
  for (FakeDevice::Port& port : device_.ports) {
    port.attr.link_layer = abi::kLinkInfiniband;
    port.attr.lid = 3;
  }
  RcAddress address = address_of(Rank{1});
  const auto transport = make(1);
  const auto path_to = [&](const abi::Gid& gid) {
    address.gid = gid;
    const std::vector<Bytes> addresses{{}, address.pack()};
    transport->connect(addresses, milliseconds(1));
    return device_.last_path.ah_attr;
  };
  EXPECT_EQ(path_to(device_.ports[0].gids[0].gid).is_global, 0) << "within a subnet";
  EXPECT_EQ(path_to(device_.ports[0].gids[0].gid).dlid, FakeDevice::kLid);
  EXPECT_EQ(path_to(kGlobal).is_global, 1) << "of another subnet";
}

TEST_F(RcSetup, AnInfinibandPortWithoutALidIsNotTaken) {
  device_.ports.resize(1);
  device_.ports[0].attr.link_layer = abi::kLinkInfiniband;
  EXPECT_SAYS(error_of([&] { make(); }), "the port has no LID");
}

TEST_F(RcSetup, APeerThatNeverAnswersIsNamedWithinTheLimit) {
  const auto transport = make();
  std::vector<Bytes> addresses{{}, address_of(Rank{1}).pack(), address_of(Rank{2}).pack()};
  transport->connect(addresses, milliseconds(1));
  const Error error = error_of([&] { transport->check_paths({milliseconds(20)}); });
  EXPECT_EQ(error.kind(), ErrorKind::deadline);
  EXPECT_SAYS(error, "rank 1: 0 of 1 probes came, own ones not acknowledged; rank 2: 0 of 1");
}

TEST_F(RcSetup, WhileAPathIsTriedADeathThatIsToldEndsItAtOnce) {
  const auto transport = make();
  std::vector<Bytes> addresses{{}, address_of(Rank{1}).pack(), address_of(Rank{2}).pack()};
  transport->connect(addresses, milliseconds(1));
  // The second time a write fails by it before it is told.
  for (const bool has_failed : {false, true}) {
    if (has_failed) device_.refusals = {{"post_send", 2}};
    int looks = 0;
    const Error error = error_of([&] {
      transport->check_paths({std::chrono::hours(1), [&] {
                                if (++looks == 3) throw Error(ErrorKind::peer_lost, {.what = "rank 2 is lost"});
                              }});
    });
    EXPECT_EQ(error.kind(), ErrorKind::peer_lost) << error.what();
    EXPECT_SAYS(error, "rank 2 is lost");
  }
}

TEST_F(RcSetup, KeysOfLaterRangesAreToldOnceAndLearned) {
  const auto transport = make(1);
  transport->register_arena(0, kPage);
  const RcAddress address = RcAddress::unpack(Rank{0}, transport->address());
  ASSERT_EQ(address.keys.size(), 1u);
  EXPECT_TRUE(unpack_keys(transport->new_keys()).empty());
  transport->register_arena(kPage, kPage);
  const std::vector<verbs::MemoryKey> later = unpack_keys(transport->new_keys());
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0].begin, kPage);

  RcAddress peer = address_of(Rank{1});
  peer.keys = address.keys;
  const std::vector<Bytes> addresses{{}, peer.pack()};
  transport->connect(addresses, milliseconds(1));
  const WriteRequest request{.peer = Rank{1}, .src_offset = 0, .dst_offset = kPage, .bytes = 16};
  EXPECT_SAYS(error_of([&] { transport->post({&request, 1}); }), "the peer has registered no memory there");
  const std::vector<Bytes> keys{pack_keys({}), pack_keys(later)};
  transport->learn_keys(keys);
  EXPECT_EQ(transport->post({&request, 1}), 1u);
}

TEST_F(RcSetup, WordsAreNeverRegisteredForRelaxedOrdering) {
  options_.relaxed_ordering = true;
  options_.signal = RcSignal::immediate;
  std::vector<int> access;
  const auto transport = make(1);
  static std::vector<int>* seen = nullptr;
  seen = &access;
  table_.reg_mr = [](abi::Pd*, void*, size_t, int flags) -> abi::Mr* {
    seen->push_back(flags);
    errno = EINVAL;
    return nullptr;
  };
  table_.reg_mr_optional = [](abi::Pd* pd, void* begin, size_t bytes, uint64_t, unsigned flags) {
    return seen->push_back(static_cast<int>(flags)), static_cast<abi::Mr*>((void)pd, (void)begin, (void)bytes, nullptr);
  };
  EXPECT_THROW(transport->register_arena(0, kPage), Error);
  EXPECT_THROW(transport->register_arena(kPage, kPage), Error);
  ASSERT_EQ(access.size(), 2u);
  EXPECT_EQ(access[0] & abi::kAccessRelaxedOrdering, 0);
  EXPECT_NE(access[1] & abi::kAccessRelaxedOrdering, 0);
}

}  // namespace
}  // namespace tilewire

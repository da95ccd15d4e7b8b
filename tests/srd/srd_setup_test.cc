// What the SRD transport does before it carries anything: which device it takes, what it says when none fits, and that
// nothing is left of an attempt that failed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <map>
#include <span>
#include <string>

#include "fake_verbs/control.h"
#include "transport/error_text.h"
#include "transport/registry.h"
#include "transport/srd/address.h"
#include "transport/srd/srd_transport.h"
#include "transport/test_network.h"
#include "transport/transport_choice.h"

namespace tilewire {
namespace {

using std::chrono::milliseconds;

class SrdSetup : public ::testing::Test {
 protected:
  static constexpr uint64_t kPage = 4096;

  SrdSetup() : arena_(8 * kPage) { options_.verbs_library = options_.efa_library = FakeVerbs::library(); }
  ~SrdSetup() override {
    EXPECT_EQ(FakeVerbs::held(), 0) << "something was left";
    EXPECT_EQ(FakeVerbs::count("freed_too_early"), 0);
    EXPECT_EQ(FakeVerbs::count("refused"), 0);
  }

  TransportContext context_of(int32_t rank, int32_t ranks) {
    TransportContext context{.rank = Rank{rank}, .ranks = ranks, .arena = arena_.data(), .arena_bytes = arena_.size()};
    for (int32_t r = 0; r < ranks; ++r) {
      if (r != rank) context.peers.emplace_back(r);
    }
    return context;
  }
  std::unique_ptr<Transport> make(int32_t rank = 0, int32_t ranks = 2) {
    const SrdLibraries libraries = load_srd_libraries(options_);
    const TransportContext context = context_of(rank, ranks);
    return make_srd_port_transport(context, options_, libraries,
                                   open_port(*libraries.verbs, srd_port_wish(libraries, options_), context));
  }
  Error error_of_making() {
    return error_of([&] { make(); });
  }

  SrdOptions options_;
  std::vector<std::byte> arena_;
};

TEST_F(SrdSetup, EachLibraryThatIsNotThereIsNamed) {
  options_.efa_library = "libno-such-efa.so.1";
  Error error = error_of_making();
  EXPECT_EQ(error.kind(), ErrorKind::unavailable);
  EXPECT_SAYS(error, "libefa is not here");
  EXPECT_SAYS(error, "libno-such-efa.so.1");
  EXPECT_SAYS(error, "TILEWIRE_EFA_LIBRARY");
  options_.efa_library = "libm.so.6";
  error = error_of_making();
  EXPECT_SAYS(error, "libefa is too old, or it is another library");
  EXPECT_SAYS(error, "efadv_query_device");
  options_.verbs_library = "libno-such-verbs.so.1";
  EXPECT_SAYS(error_of_making(), "libibverbs is not here");
}

TEST_F(SrdSetup, EachReasonWhyNoDeviceCanBeUsedIsSaid) {
  const auto expect = [&](const std::string& setting, const std::string& back, const char* text) {
    const FakeVerbsSetting set(setting, back);
    const Error error = error_of_making();
    EXPECT_EQ(error.kind(), ErrorKind::unavailable);
    EXPECT_SAYS(error, text);
    EXPECT_EQ(why_no_srd_port(options_), error.what());
  };
  expect("devices=0", "devices=2", "there is no RDMA device");
  expect("active=0", "active=1", "efa0:1: the port is down; efa1:1: the port is down");
  expect("efa=0", "efa=1", "efa0:1: it is no EFA device");
  expect("rdma_write=0", "rdma_write=1", "efa0:1: it has no RDMA write, or libefa is too old to know");
  expect("gids=0", "gids=1", "efa0:1: its GID cannot be read");
  options_.device = "rdmap9s9";
  expect("seed=1", "seed=1", "srd_device = rdmap9s9");
  options_.device.clear();
  options_.unsolicited = SrdUnsolicited::on;
  const FakeVerbsSetting set("unsolicited=0", "unsolicited=1");
  EXPECT_SAYS(error_of_making(), "srd_unsolicited = on, device efa0:1");
}

// With 2 channels and a queue pair for reports, each brought to three states, 512 receives of a channel in two posts, 3 ranges
// beside the transport's own, and both peers on one device.
TEST_F(SrdSetup, NothingIsLeftWhenAnyCallIsRefused) {
  options_.unsolicited = SrdUnsolicited::off;
  options_.channels = 2;
  options_.device = "efa0";  // else another one is taken where it cannot be opened
  const auto peer = make(1, 3);
  const auto other = make(2, 3);
  const std::vector<Bytes> addresses{{}, peer->address(), other->address()};
  const int64_t held = FakeVerbs::held();
  const std::map<std::string, int> calls{{"get_device_list", 1}, {"open_device", 1}, {"alloc_pd", 1},
                                         {"reg_mr", 1 + 3},      {"create_cq", 6},   {"create_qp", 3},
                                         {"modify_qp", 9},       {"post_recv", 5},   {"create_ah", 1}};
  for (const auto& [call, count] : calls) {
    for (int number = 0; number <= count; ++number) {
      const FakeVerbsSetting set(fmt::format("refuse={}:{}:12", call, number), "refuse=none:0");
      const Error error = error_of([&] {
        const auto transport = make(0, 3);
        for (uint64_t i = 0; i < 3; ++i) transport->register_arena(i * kPage, kPage);
        transport->connect(addresses, milliseconds(1));
        throw Error(ErrorKind::closed, {.what = "all went well"});
      });
      const bool is_refused = error.kind() == ErrorKind::resource || error.kind() == ErrorKind::unavailable;
      EXPECT_EQ(is_refused, number < count) << call << " number " << number << ": " << error.what();
      EXPECT_EQ(error.kind() == ErrorKind::closed, number == count) << call << " number " << number;
      EXPECT_EQ(FakeVerbs::held(), held) << call << " number " << number << ": " << error.what();
    }
  }
}

TEST_F(SrdSetup, AddressHandlesAreOneForEachDeviceHoweverManyRanksAreBehindIt) {
  const auto transport = make(0, 4);
  std::vector<std::unique_ptr<Transport>> peers;
  std::vector<Bytes> addresses{{}};
  for (int32_t r = 1; r < 4; ++r) {
    peers.push_back(make(r, 4));
    addresses.push_back(peers.back()->address());
  }
  transport->connect(addresses, milliseconds(1));
  EXPECT_EQ(FakeVerbs::count("ah"), 1) << "all are on efa0";
}

// A device that has just so much is enough, and one that has one less of anything is refused by that name before anything
// is made. A job of 64 ranks with 16 channels, too, and several ranks on one device.
TEST_F(SrdSetup, WhatASessionTakesOfADeviceIsCountedForAllRanksOnIt) {
  struct Case {
    int32_t ranks, channels, sharing;
  };
  for (const Case& c : {Case{2, 1, 1}, Case{64, 16, 1}, Case{8, 3, 2}, Case{57, 2, 8}}) {
    options_.channels = c.channels;
    options_.device = "efa0";
    const SrdLibraries libraries = load_srd_libraries(options_);
    TransportContext context = context_of(0, c.ranks);
    context.host_ranks.assign(static_cast<size_t>(c.sharing), {.peers = static_cast<size_t>(c.ranks - 1)});
    const auto begin = [&] {
      return make_srd_port_transport(context, options_, libraries,
                                     open_port(*libraries.verbs, srd_port_wish(libraries, options_), context));
    };
    struct Limit {
      const char* kind;
      int64_t most;
      const char* text;
      int64_t needed = 0;
    };
    Limit limits[] = {{"qp", 256, "too few queue pairs"},
                      {"cq", 1024, "too few completion queues"},
                      {"mr", 1024, "too few memory regions"},
                      {"pd", 1024, "too few protection domains"},
                      {"ah", 4096, "too few address handles", int64_t{c.ranks - 1} * c.sharing}};
    {
      const auto transport = begin();
      transport->register_arena(0, kPage);
      EXPECT_EQ(FakeVerbs::count("qp"), c.channels + 1);
      for (Limit& limit : std::span(limits).first(4)) limit.needed = FakeVerbs::count(limit.kind) * c.sharing;
    }
    const auto set_all = [&](const Limit* scarce) {
      for (const Limit& limit : limits) {
        FakeVerbs::set(fmt::format("max_{}={}", limit.kind, &limit == scarce ? limit.needed - 1 : limit.needed));
      }
    };
    set_all(nullptr);
    EXPECT_NO_THROW(begin());
    for (const Limit& limit : limits) {
      if (limit.needed == 1) continue;  // none at all is a device that does not say
      set_all(&limit);
      const Error error = error_of(begin);
      EXPECT_EQ(error.kind(), ErrorKind::resource);
      EXPECT_SAYS(error, limit.text);
      EXPECT_SAYS(error, fmt::format("needed = {}: {}", limit.needed, c.ranks - 1));
    }
    for (const Limit& limit : limits) FakeVerbs::set(fmt::format("max_{}={}", limit.kind, limit.most));
  }
}

TEST_F(SrdSetup, ARefusedAddressHandleNamesTheRankAndBothEnds) {
  const auto transport = make();
  const auto peer = make(1);
  const FakeVerbsSetting set("refuse=create_ah:0:113", "refuse=none:0");
  const std::vector<Bytes> addresses{{}, peer->address()};
  const Error error = error_of([&] { transport->connect(addresses, milliseconds(1)); });
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_SAYS(error, "no address handle for rank 1");
  EXPECT_SAYS(error, "of efa0:1, from efa0:1: No route to host");
  EXPECT_SAYS(error, "security group");
}

TEST_F(SrdSetup, AFailedRegistrationNamesTheBytesAndTheLimitOnLockedMemory) {
  const auto transport = make();
  const FakeVerbsSetting set("refuse=reg_mr:0:12", "refuse=none:0");
  const Error error = error_of([&] { transport->register_arena(kPage, 3 * kPage); });
  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_SAYS(error, "12288 bytes: Cannot allocate memory");
  EXPECT_SAYS(error, "ulimit -l");
  EXPECT_SAYS(error, "srd transport of rank 0");
}

TEST_F(SrdSetup, RanksThatDifferAreToldInWhat) {
  const auto transport = make();
  const auto expect = [&](const char* text) {
    const auto peer = make(1);
    const std::vector<Bytes> addresses{{}, peer->address()};
    const Error error = error_of([&] { transport->connect(addresses, milliseconds(1)); });
    EXPECT_EQ(error.kind(), ErrorKind::mismatch);
    EXPECT_SAYS(error, "rank 1");
    EXPECT_SAYS(error, text);
  };
  options_.channels = 2;
  expect("srd_channels = 1 here, 2 there");
  options_.channels = 1;
  options_.unsolicited = SrdUnsolicited::off;
  expect("without receives here on efa0:1, with receives there on efa0:1");
}

TEST_F(SrdSetup, APeerThatNeverAnswersIsNamedWithinTheLimit) {
  const auto transport = make(0, 3);
  const auto other = make(1, 3);
  std::vector<Bytes> addresses{{}, other->address(), {}};
  SrdAddress nobody = SrdAddress::unpack(Rank{1}, addresses[1]);
  nobody.gid[8] ^= 0x55;  // no such host
  addresses[2] = nobody.pack();
  transport->connect(addresses, milliseconds(1));
  other->connect(std::vector<Bytes>{transport->address(), {}, addresses[2]}, milliseconds(1));
  const FakeVerbsSetting set("gone_ms=60000", "gone_ms=200");
  const Error error = error_of([&] { transport->check_paths({milliseconds(1000)}); });
  EXPECT_EQ(error.kind(), ErrorKind::deadline);
  EXPECT_SAYS(error, "rank 1: 0 of 1 probes came, own ones acknowledged");
  EXPECT_SAYS(error, "rank 2: 0 of 1 probes came, own ones not acknowledged");
}

TEST_F(SrdSetup, AutoTakesItWhereThereAreSeveralHostsAndNamesWhatIsInTheWayElsewhere) {
  const size_t number = [] {
    size_t i = 0;
    while (transport_kinds()[i].name != "srd") ++i;
    return i;
  }();
  Options options = FakeVerbs::options();
  options.transport = "auto";
  const std::vector<std::string> two_hosts = transport_obstacles(options, {.hosts = 2});
  EXPECT_EQ(two_hosts[number], "");
  EXPECT_EQ(agree_on_transport(options, {two_hosts, two_hosts}).name, "srd");
  const FakeVerbsSetting set("rdma_write=0", "rdma_write=1");
  const std::vector<std::string> without = transport_obstacles(options, {.hosts = 2});
  EXPECT_SAYS(error_of([&] {
                agree_on_transport(options, {two_hosts, without});
              }),
              "srd: not for 1 of 2 ranks; rank 1: no port of an RDMA device can be used");
}

}  // namespace
}  // namespace tilewire

#include "transport/bootstrap/address.h"

#include <gtest/gtest.h>

#include "transport/bootstrap/bootstrap_fixture.h"
#include "transport/bootstrap/host_identity.h"

namespace tilewire {
namespace {

NetworkView fixture() {
  NetworkView view;
  view.interfaces = {{"lo", "127.0.0.1", true, true},      {"lo", "::1", true, true},
                     {"ib0", "10.1.0.7", false, false},    {"eth0", "fe80::1%eth0", true, false},
                     {"eth0", "2001:db9::7", true, false}, {"eth0", "192.168.3.7", true, false},
                     {"eth1", "10.0.0.7", true, false}};
  view.is_own = [](const std::string& literal) {
    return literal.starts_with("127.") || literal == "0.0.0.0" || literal == "192.168.3.7" || literal == "10.0.0.7";
  };
  view.route_source = [](const std::string& host) -> std::string {
    if (host.starts_with("127.")) return "127.0.0.1";
    if (host.starts_with("10.")) return "10.0.0.7";
    return host == "192.0.2.1" ? "192.168.3.7" : "";
  };
  return view;
}

TEST(HostPort, NamesAndBothFamiliesAreRead) {
  EXPECT_EQ(parse_host_port("node7:29500").host, "node7");
  EXPECT_EQ(parse_host_port("10.0.0.7:1").port, 1);
  EXPECT_EQ(parse_host_port("[::1]:65535").host, "::1");
  EXPECT_EQ(parse_host_port("[fe80::1%eth0]:80").to_text(), "[fe80::1%eth0]:80");
}

TEST(HostPort, WhatIsWrongIsSaid) {
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{{"node7", "no port"},
                                                                                  {":80", "host is empty"},
                                                                                  {"a:0", "1..65535"},
                                                                                  {"a:65536", "1..65535"},
                                                                                  {"a:", "no number"},
                                                                                  {"a:8x", "no number"},
                                                                                  {"a:-1", "no number"},
                                                                                  {"::1:80", "brackets"},
                                                                                  {"[::1:80", "bracket"}}) {
    const Failure failure = failure_of([&, t = text] { parse_host_port(t); });
    EXPECT_EQ(failure.kind, ErrorKind::invalid_argument) << text;
    EXPECT_TRUE(failure.names(why)) << failure.text;
  }
}

TEST(ChooseAddress, NamedOnesWinAndTheReasonSaysSo) {
  EXPECT_EQ(choose_address({.address = "1.2.3.4"}, fixture()).address, "1.2.3.4");
  const ChosenAddress eth0 = choose_address({.interface = "eth0"}, fixture());
  EXPECT_EQ(eth0.address, "192.168.3.7");  // IPv4 before IPv6
  EXPECT_NE(eth0.reason.find("eth0"), std::string::npos) << eth0.reason;
}

TEST(ChooseAddress, InterfaceMayBeNamedByOneOfItsAddresses) {
  EXPECT_EQ(choose_address({.interface = "10.0.0.7"}, fixture()).interface, "eth1");
}

TEST(ChooseAddress, DownOrUnknownInterfaceIsAnErrorThatListsTheOthers) {
  for (const char* name : {"ib0", "wlan9"}) {
    const Failure failure = failure_of([&] { choose_address({.interface = name}, fixture()); });
    EXPECT_EQ(failure.kind, ErrorKind::unavailable);
    EXPECT_TRUE(failure.names("eth1 10.0.0.7")) << failure.text;
  }
}

TEST(ChooseAddress, RouteToTheRendezvousHostDecides) {
  const ChosenAddress chosen = choose_address({.rendezvous_host = "10.0.0.1"}, fixture());
  EXPECT_EQ(chosen.address, "10.0.0.7");
  EXPECT_EQ(chosen.interface, "eth1");
}

TEST(ChooseAddress, LoopbackIsNotToldToOtherHosts) {
  EXPECT_EQ(choose_address({.rendezvous_host = "127.0.1.1"}, fixture()).address, "192.168.3.7");
  EXPECT_EQ(choose_address({.rendezvous_host = "127.0.1.1", .is_single_host = true}, fixture()).address, "127.0.0.1");
  EXPECT_EQ(choose_address({.is_single_host = true}, fixture()).address, "127.0.0.1");
  NetworkView lonely = fixture();
  lonely.interfaces.resize(2);
  lonely.route_source = [](const std::string&) { return std::string(); };
  EXPECT_EQ(failure_of([&] { choose_address({}, lonely); }).kind, ErrorKind::unavailable);
}

TEST(ChooseAddress, WithoutAnyRouteTheFirstInterfaceThatIsUpServes) {
  NetworkView view = fixture();
  view.route_source = [](const std::string&) { return std::string(); };
  EXPECT_EQ(choose_address({}, view).address, "192.168.3.7");
  EXPECT_EQ(choose_address({.is_single_host = true}, this_network()).address, "127.0.0.1");
}

TEST(ListeningPlace, AddressOfAnotherHostIsRefusedWithOwnAddressesAndWhatToPass) {
  const Failure failure = failure_of([] {
    listening_place({"node9", 29500}, {"10.0.0.9", "10.1.0.9"}, {}, fixture());
  });
  EXPECT_EQ(failure.kind, ErrorKind::unavailable);
  for (const char* part : {"node9:29500", "10.0.0.9, 10.1.0.9", "eth1 10.0.0.7", "TILEWIRE_INTERFACE", "rendezvous"}) {
    EXPECT_TRUE(failure.names(part)) << part << " is missing: " << failure.text;
  }
}

TEST(ListeningPlace, OwnNamesAndAddressesStayAsTheyAre) {
  EXPECT_EQ(listening_place({"10.0.0.7", 5}, {"10.0.0.7"}, {}, fixture()).host, "10.0.0.7");
  // One of the name's addresses is enough, and Debian gives a host's own name the address 127.0.1.1.
  EXPECT_EQ(listening_place({"node7", 5}, {"10.9.9.9", "10.0.0.7"}, {}, fixture()).host, "node7");
  EXPECT_EQ(listening_place({"node7", 5}, {"127.0.1.1"}, {}, fixture()).host, "node7");
  EXPECT_EQ(listening_place({"0.0.0.0", 5}, {"0.0.0.0"}, {}, fixture()).host, "0.0.0.0");
}

TEST(ListeningPlace, NamedInterfaceIsTheOnlyOneThatIsListenedOn) {
  const AddressRequest eth1{.interface = "eth1"};
  EXPECT_EQ(listening_place({"node7", 5}, {"192.168.3.7", "10.0.0.7"}, eth1, fixture()).host, "10.0.0.7");
  EXPECT_EQ(listening_place({"0.0.0.0", 5}, {"0.0.0.0"}, eth1, fixture()).host, "10.0.0.7");
  EXPECT_EQ(listening_place({"service", 5}, {"10.96.0.1"}, eth1, fixture()).to_text(), "10.0.0.7:5");
  // Where all ranks are on this host no interface is used, but its name must be right.
  EXPECT_EQ(listening_place({"127.0.0.1", 5}, {"127.0.0.1"}, eth1, fixture()).host, "127.0.0.1");
  EXPECT_TRUE(failure_of([] {
                listening_place({"127.0.0.1", 5}, {"127.0.0.1"}, {.interface = "eth7"}, fixture());
              }).names("eth7"));
}

TEST(ListeningPlace, AddressOfAnotherInterfaceThanTheNamedOneIsRefused) {
  const Failure failure = failure_of([] {
    listening_place({"192.168.3.7", 5}, {"192.168.3.7"}, {.interface = "eth1"}, fixture());
  });
  EXPECT_EQ(failure.kind, ErrorKind::invalid_argument);
  EXPECT_TRUE(failure.names("192.168.3.7 is on eth0") && failure.names("'eth1'")) << failure.text;
}

TEST(SourceAddress, ConnectionsComeFromTheNamedInterfaceInTheFamilyOfTheirGoal) {
  EXPECT_EQ(source_address("10.0.0.1", {}, fixture()), "");
  EXPECT_EQ(source_address("10.0.0.1", {.interface = "eth0"}, fixture()), "192.168.3.7");
  EXPECT_EQ(source_address("10.0.0.1", {.interface = "10.0.0.7"}, fixture()), "10.0.0.7");
  EXPECT_EQ(source_address("2001:db9::1", {.interface = "eth0"}, fixture()), "2001:db9::7");
  EXPECT_EQ(source_address("2001:db9::1", {.interface = "eth1"}, fixture()), "");
  EXPECT_EQ(source_address("127.0.0.1", {.interface = "eth1"}, fixture()), "");
}

TEST(ThisNetwork, KnowsWhichAddressesAreItsOwn) {
  const NetworkView network = this_network();
  for (const auto& i : network.interfaces) EXPECT_TRUE(!i.is_up || network.is_own(i.address)) << i.address;
  EXPECT_TRUE(network.is_own("127.0.1.1"));
  EXPECT_FALSE(network.is_own("203.0.113.77"));
}

TEST(HostIdentity, OtherBootOrNamespaceOrNameIsAnotherHost) {
  const HostIdentity here = this_host();
  EXPECT_TRUE(here.is_same_host(this_host()));
  for (std::string HostIdentity::*part : {&HostIdentity::hostname, &HostIdentity::boot_id,
                                          &HostIdentity::network_namespace, &HostIdentity::override_id}) {
    HostIdentity other = here;
    other.*part += "x";
    EXPECT_FALSE(here.is_same_host(other));
    EXPECT_FALSE(other.is_same_host(here));
  }
}

TEST(HostIdentity, RanksAreGroupedInTheOrderOfTheirLowestRank) {
  const std::vector<HostIdentity> hosts = {this_host("b"), this_host("a"), this_host("b"), this_host("c"),
                                           this_host("a")};
  const auto groups = group_by_host(hosts);
  ASSERT_EQ(groups.size(), 3u);
  EXPECT_EQ(groups[0], (std::vector<Rank>{Rank(0), Rank(2)}));
  EXPECT_EQ(groups[1], (std::vector<Rank>{Rank(1), Rank(4)}));
  EXPECT_EQ(groups[2], (std::vector<Rank>{Rank(3)}));
}

}  // namespace
}  // namespace tilewire

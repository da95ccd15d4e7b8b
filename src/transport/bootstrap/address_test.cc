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

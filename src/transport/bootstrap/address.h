// Addresses of hosts: parsing "host:port", and choosing which address of this host to tell the other ranks, with a
// reason that a person can check.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tilewire {

struct HostPort {
  std::string host{};  // name, IPv4 or IPv6 literal without brackets
  uint16_t port = 0;

  std::string to_text() const;  // IPv6 in brackets
};

// "node7:29500", "10.0.0.7:29500", "[fe80::1%eth0]:29500". Throws Error(invalid_argument) naming the text and what is
// wrong with it.
HostPort parse_host_port(std::string_view text);

struct InterfaceAddress {
  std::string interface {};  // "eth0"
  std::string address{};     // literal; IPv6 link-local ones carry "%interface"
  bool is_up = true;
  bool is_loopback = false;
};

// What choose_address() looks at; a test passes fixtures.
struct NetworkView {
  std::vector<InterfaceAddress> interfaces{};
  // The local address that traffic to `host` (a literal) would leave from; "" when there is no route.
  std::function<std::string(const std::string& host)> route_source{};
};

NetworkView this_network();

struct AddressRequest {
  std::string address{};          // a literal the user named, or ""
  std::string interface {};       // an interface the user named, or ""
  std::string rendezvous_host{};  // a literal that all ranks can reach, or ""
  bool is_single_host = false;    // the launcher knows that all ranks are on this host
};

struct ChosenAddress {
  std::string address{};
  std::string interface {};
  std::string reason{};  // one line for the log: "eth0 10.0.0.7: the route to 10.0.0.1 leaves from it"
};

// In this order: the named address, the named interface, the route to the rendezvous host, loopback on a single host,
// the default route, the first interface that is up. Loopback is never told to other hosts unless it was named.
// Throws Error(unavailable) that lists the interfaces there are when nothing fits.
ChosenAddress choose_address(const AddressRequest& request, const NetworkView& network);

}  // namespace tilewire

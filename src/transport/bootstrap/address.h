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
  // Whether this host can listen at a literal: one of its addresses, all of 127.0.0.0/8, or "any address".
  std::function<bool(const std::string& literal)> is_own{};
};

NetworkView this_network();

struct AddressRequest {
  std::string address{};          // a literal the user named, or ""
  std::string interface {};       // an interface the user named, or one of its addresses, or ""
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

// Where rank 0 listens, given the place at which all ranks were told to meet and the literals that its host resolves to
// here: a host whose name means this host listens on all interfaces (the others may resolve it to another address), a
// literal on itself, and where an interface was named on that one alone. Loopback is left as it is: then all ranks are
// on this host, and no interface is used.
// Throws Error(unavailable) that lists the addresses there are when none of the literals is this host's and no
// interface was named, Error(invalid_argument) when the literals are of another interface than the named one.
HostPort listening_place(const HostPort& meeting, const std::vector<std::string>& literals,
                         const AddressRequest& request, const NetworkView& network);

// The address of this host that a connection to `literal` should come from because its interface was named; "" when
// none was, or none of its addresses is of the same family, or `literal` is loopback.
std::string source_address(const std::string& literal, const AddressRequest& request, const NetworkView& network);

}  // namespace tilewire

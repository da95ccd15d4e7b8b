#include "transport/bootstrap/address.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <optional>

#include "transport/bootstrap/socket.h"

namespace tilewire {
namespace {

// Addresses that no host has (RFC 5737 and RFC 3849): the way to them is the default route.
constexpr const char* kNobodyV4 = "192.0.2.1";
constexpr const char* kNobodyV6 = "2001:db8::1";

[[noreturn]] void throw_bad_address(std::string_view text, const char* why) {
  throw Error(ErrorKind::invalid_argument, {.what = fmt::format("not an address of rank 0: '{}'", text),
                                            .values = why,
                                            .advice = "write host:port or [IPv6 address]:port"});
}

uint16_t parse_port(std::string_view whole, std::string_view text) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) throw_bad_address(whole, "the port is no number");
  if (port < 1 || port > 65535) throw_bad_address(whole, "the port is not in 1..65535");
  return static_cast<uint16_t>(port);
}

bool is_loopback_literal(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

bool is_any_literal(const std::string& address) { return address == "0.0.0.0" || address == "::"; }

bool is_ipv6(const std::string& address) { return address.find(':') != std::string::npos; }

std::string list_interfaces(const NetworkView& network) {
  std::vector<std::string> texts;
  for (const auto& i : network.interfaces) {
    texts.push_back(fmt::format("{} {}{}", i.interface, i.address, i.is_up ? "" : " (down)"));
  }
  return texts.empty() ? std::string("this host has no addresses") : fmt::format("{}", fmt::join(texts, ", "));
}

std::string interface_of(const std::string& address, const NetworkView& network) {
  for (const auto& i : network.interfaces) {
    if (i.address == address) return i.interface;
  }
  return {};
}

// An IPv4 address before an IPv6 one, a global IPv6 one before a link-local one.
const InterfaceAddress* best_of(const std::vector<const InterfaceAddress*>& candidates) {
  const auto cost = [](const InterfaceAddress* i) {
    return !is_ipv6(i->address) ? 0 : i->address.find('%') == std::string::npos ? 1 : 2;
  };
  const auto best =
      std::min_element(candidates.begin(), candidates.end(), [&](auto* a, auto* b) { return cost(a) < cost(b); });
  return best == candidates.end() ? nullptr : *best;
}

ChosenAddress chosen(const std::string& address, const NetworkView& network, const std::string& why) {
  const std::string interface = interface_of(address, network);
  return {address, interface, fmt::format("{} {}: {}", interface.empty() ? "?" : interface, address, why)};
}

ChosenAddress choose_by_interface(const std::string& name, const NetworkView& network) {
  std::vector<const InterfaceAddress*> candidates;
  for (const auto& i : network.interfaces) {
    if ((i.interface == name || i.address == name) && i.is_up) candidates.push_back(&i);
  }
  const InterfaceAddress* best = best_of(candidates);
  if (best == nullptr) {
    throw Error(ErrorKind::unavailable, {.what = fmt::format("interface '{}' has no address that is up", name),
                                         .values = list_interfaces(network),
                                         .advice = "name one of these interfaces in TILEWIRE_INTERFACE"});
  }
  return chosen(best->address, network, "the interface was named by an option");
}

bool is_literal_of_this_host(const std::string& literal, const NetworkView& network) {
  return network.is_own && network.is_own(literal);
}

[[noreturn]] void throw_not_here(const HostPort& meeting, const std::vector<std::string>& literals,
                                 const NetworkView& network) {
  const std::string found =
      literals == std::vector{meeting.host} ? "" : fmt::format(" ({})", fmt::join(literals, ", "));
  throw Error(ErrorKind::unavailable,
              {.what = fmt::format("the ranks are to meet at {}{}, which is no address of rank 0's host",
                                   meeting.to_text(), found),
               .values = fmt::format("this host has {}", list_interfaces(network)),
               .advice = "pass the address of rank 0's host as the rendezvous, or start rank 0 there; if the others "
                         "reach this host by that address all the same, name the interface in TILEWIRE_INTERFACE"});
}

HostPort place_on_interface(const HostPort& meeting, const std::vector<std::string>& literals,
                            const std::string& interface, const NetworkView& network) {
  const ChosenAddress named = choose_by_interface(interface, network);
  for (const std::string& literal : literals) {
    if (interface_of(literal, network) == named.interface) return {literal, meeting.port};
  }
  for (const std::string& literal : literals) {
    if (!is_literal_of_this_host(literal, network)) continue;
    throw Error(ErrorKind::invalid_argument,
                {.what = fmt::format("the ranks are to meet at {}, which is not on interface '{}'", meeting.to_text(),
                                     interface),
                 .values = fmt::format("{} is on {}; this host has {}", literal, interface_of(literal, network),
                                       list_interfaces(network)),
                 .advice = "pass an address of that interface as the rendezvous, or leave TILEWIRE_INTERFACE unset"});
  }
  // The others know this host by an address that it does not have itself.
  return {named.address, meeting.port};
}

std::optional<ChosenAddress> choose_by_route(const AddressRequest& request, const NetworkView& network) {
  if (request.rendezvous_host.empty()) return std::nullopt;
  const std::string source = network.route_source(request.rendezvous_host);
  if (source.empty() || (is_loopback_literal(source) && !request.is_single_host)) return std::nullopt;
  return chosen(source, network, fmt::format("the route to {} leaves from it", request.rendezvous_host));
}

std::optional<ChosenAddress> choose_by_default(const NetworkView& network) {
  for (const char* nobody : {kNobodyV4, kNobodyV6}) {
    const std::string source = network.route_source(nobody);
    if (!source.empty() && !is_loopback_literal(source))
      return chosen(source, network, "the default route leaves from it");
  }
  std::vector<const InterfaceAddress*> candidates;
  for (const auto& i : network.interfaces) {
    if (i.is_up && !i.is_loopback) candidates.push_back(&i);
  }
  const InterfaceAddress* best = best_of(candidates);
  if (best == nullptr) return std::nullopt;
  return chosen(best->address, network, "the first interface that is up; there is no default route");
}

}  // namespace

std::string HostPort::to_text() const {
  return is_ipv6(host) ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

HostPort parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) throw_bad_address(text, "there is no port");
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[')) {
    if (!host.ends_with(']')) throw_bad_address(text, "the bracket of the IPv6 address is not closed before the port");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw_bad_address(text, "an IPv6 address needs brackets");
  }
  if (host.empty()) throw_bad_address(text, "the host is empty");
  return {std::string(host), parse_port(text, text.substr(colon + 1))};
}

NetworkView this_network() {
  NetworkView view;
  view.route_source = [](const std::string& host) { return route_source(host); };
  view.is_own = [](const std::string& literal) { return can_bind(literal); };
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return view;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, ::freeifaddrs);
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> text{};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (::getnameinfo(at->ifa_addr, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    view.interfaces.push_back(
        {at->ifa_name, text.data(), (at->ifa_flags & IFF_UP) != 0, (at->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return view;
}

ChosenAddress choose_address(const AddressRequest& request, const NetworkView& network) {
  if (!request.address.empty()) return chosen(request.address, network, "the address was named by an option");
  if (!request.interface.empty()) return choose_by_interface(request.interface, network);
  if (auto by_route = choose_by_route(request, network)) return *by_route;
  if (request.is_single_host) return chosen("127.0.0.1", network, "all ranks are on this host");
  if (auto by_default = choose_by_default(network)) return *by_default;
  throw Error(ErrorKind::unavailable, {.what = "no address of this host can be told to other hosts",
                                       .values = list_interfaces(network),
                                       .advice = "name an address or an interface"});
}

HostPort listening_place(const HostPort& meeting, const std::vector<std::string>& literals,
                         const AddressRequest& request, const NetworkView& network) {
  if (!request.interface.empty()) choose_by_interface(request.interface, network);  // a wrong name is an error anywhere
  if (std::all_of(literals.begin(), literals.end(), is_loopback_literal)) return meeting;
  if (is_any_literal(meeting.host)) {
    return request.interface.empty() ? meeting
                                     : HostPort{choose_by_interface(request.interface, network).address, meeting.port};
  }
  if (!request.interface.empty()) return place_on_interface(meeting, literals, request.interface, network);
  const auto is_own = [&](const std::string& literal) { return is_literal_of_this_host(literal, network); };
  if (std::none_of(literals.begin(), literals.end(), is_own)) throw_not_here(meeting, literals, network);
  return meeting;
}

std::string source_address(const std::string& literal, const AddressRequest& request, const NetworkView& network) {
  if (request.interface.empty()) return {};
  const std::string name = choose_by_interface(request.interface, network).interface;
  if (is_loopback_literal(literal)) return {};
  std::vector<const InterfaceAddress*> candidates;
  for (const auto& i : network.interfaces) {
    if (i.interface == name && i.is_up && is_ipv6(i.address) == is_ipv6(literal)) candidates.push_back(&i);
  }
  const InterfaceAddress* best = best_of(candidates);
  return best == nullptr ? std::string() : best->address;
}

}  // namespace tilewire

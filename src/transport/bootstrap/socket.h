// TCP sockets with deadlines, for the rendezvous. All descriptors are close-on-exec.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/unique_fd.h"
#include "transport/bootstrap/address.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

// A socket that listens on host_port, non-blocking. Host "" and names listen on all interfaces, a literal on its own
// address. Port 0 takes a free one. Throws Error(resource) naming the port when it is in use, Error(unavailable) for
// what else the system refuses.
UniqueFd listen_on(const HostPort& host_port);
uint16_t local_port(int fd);

// The next connection, or a closed descriptor when there is none now (or the one there was went away). Throws
// Error(resource) when descriptors run out.
struct Accepted {
  UniqueFd fd;
  std::string peer;  // "10.0.0.7:41234"
};
Accepted accept_from(int listener);

// Turns a name into literals, numeric ones at once. Throws Error(unavailable) when nobody knows the name, nor a few
// seconds later, Error(deadline) when the resolver takes too long, Error(resource) when it can have no thread, and what `poll`, called
// meanwhile, throws.
std::vector<std::string> resolve(const std::string& host, SteadyTime deadline, const std::function<void()>& poll = {});

// One attempt: a connected socket, or a closed descriptor with the reason. Throws only for what no retry can mend.
struct Connected {
  UniqueFd fd;
  std::string reason;
};
// The connection comes from `source`, a literal of this host, unless it is "".
Connected try_connect(const std::string& literal, uint16_t port, SteadyTime deadline, const std::string& source = {});

// Whether a socket of this host can have the address `literal`. Sends nothing.
bool can_bind(const std::string& literal);

// The local address that a packet to `literal` would leave from; "" without a route. Sends nothing.
std::string route_source(const std::string& literal);

}  // namespace tilewire

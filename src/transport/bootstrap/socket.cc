#include "transport/bootstrap/socket.h"

#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "transport/bootstrap/message.h"

namespace tilewire {
namespace {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size_bytes = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

struct AddressListDeleter {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, AddressListDeleter>;

// flags: AI_NUMERICHOST keeps the resolver out of it.
AddressList look_up(const std::string& host, int flags, int& error) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  error = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  return AddressList(error == 0 ? list : nullptr);
}

bool parse_literal(const std::string& literal, uint16_t port, SocketAddress& out) {
  int error = 0;
  const AddressList list = look_up(literal, AI_NUMERICHOST, error);
  if (!list) return false;
  std::memcpy(&out.storage, list->ai_addr, list->ai_addrlen);
  out.size_bytes = list->ai_addrlen;
  if (out.family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&out.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&out.storage)->sin_port = htons(port);
  }
  return true;
}

std::string literal_of(const sockaddr* address, socklen_t size_bytes) {
  std::array<char, NI_MAXHOST> text{};
  const int error = ::getnameinfo(address, size_bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? std::string(text.data()) : std::string();
}

uint16_t port_of(const SocketAddress& address) {
  return ntohs(address.family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port
                                            : reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

SocketAddress wildcard(int family, uint16_t port) {
  SocketAddress out;
  parse_literal(family == AF_INET6 ? "::" : "0.0.0.0", port, out);
  return out;
}

void set_option(int fd, int level, int name, int value) { ::setsockopt(fd, level, name, &value, sizeof value); }

// A listening socket, or a closed one with errno set.
UniqueFd try_listen(const SocketAddress& address) {
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // a port in TIME_WAIT is free; one that listens is still taken
  if (address.family() == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(fd.get(), address.get(), address.size_bytes) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error_number = errno;
    fd.reset();
    errno = error_number;
  }
  return fd;
}

[[noreturn]] void throw_listen_error(const HostPort& host_port, int error_number) {
  if (error_number == EADDRINUSE) {
    throw Error(ErrorKind::resource, {.what = fmt::format("port {} of this host is in use", host_port.port),
                                      .values = fmt::format("rank 0 cannot listen on {}", host_port.to_text()),
                                      .advice = "give every job its own port, or end the process that holds this one"});
  }
  throw Error(ErrorKind::unavailable, {.what = fmt::format("rank 0 cannot listen on {}", host_port.to_text()),
                                       .values = strerror(error_number)});
}

bool is_self_connection(int fd) {
  SocketAddress here, there;
  here.size_bytes = there.size_bytes = sizeof(sockaddr_storage);
  if (::getsockname(fd, here.get(), &here.size_bytes) != 0) return false;
  if (::getpeername(fd, there.get(), &there.size_bytes) != 0) return false;
  return port_of(here) == port_of(there) &&
         literal_of(here.get(), here.size_bytes) == literal_of(there.get(), there.size_bytes);
}

// What a resolver thread that outlives its deadline still writes to.
struct Resolution {
  std::mutex mutex;
  std::condition_variable is_done_changed;
  bool is_done = false;
  int error = 0;
  std::vector<std::string> literals;
};

// Where hosts are started together, a name may be known only a moment after the process that asks for it.
constexpr std::chrono::seconds kNamePatience{5};
constexpr std::chrono::milliseconds kNameInterval{250};
constexpr std::chrono::milliseconds kLookAroundInterval{50};  // for whoever waits to be interrupted

void resolve_into(const std::string& host, SteadyTime deadline, Resolution& out) {
  const SteadyTime end = std::min(deadline, steady_now() + kNamePatience);
  int error = 0;
  AddressList list = look_up(host, 0, error);
  while (!list && steady_now() + kNameInterval < end) {
    std::this_thread::sleep_for(kNameInterval);
    list = look_up(host, 0, error);
  }
  const std::lock_guard lock(out.mutex);
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    out.literals.push_back(literal_of(at->ai_addr, at->ai_addrlen));
  }
  out.error = error;
  out.is_done = true;
  out.is_done_changed.notify_all();
}

}  // namespace

UniqueFd listen_on(const HostPort& host_port) {
  const std::string host = host_port.host == "localhost" ? "127.0.0.1" : host_port.host;
  SocketAddress address;
  if (parse_literal(host, host_port.port, address)) {
    UniqueFd fd = try_listen(address);
    if (!fd.is_open()) throw_listen_error(host_port, errno);
    return fd;
  }
  UniqueFd fd = try_listen(wildcard(AF_INET6, host_port.port));
  if (fd.is_open()) return fd;
  if (errno == EADDRINUSE) throw_listen_error(host_port, errno);
  fd = try_listen(wildcard(AF_INET, host_port.port));  // a host without IPv6
  if (!fd.is_open()) throw_listen_error(host_port, errno);
  return fd;
}

uint16_t local_port(int fd) {
  SocketAddress address;
  address.size_bytes = sizeof(sockaddr_storage);
  if (::getsockname(fd, address.get(), &address.size_bytes) != 0) return 0;
  return port_of(address);
}

Accepted accept_from(int listener) {
  SocketAddress address;
  address.size_bytes = sizeof(sockaddr_storage);
  UniqueFd fd(::accept4(listener, address.get(), &address.size_bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.is_open() && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    throw Error(ErrorKind::resource, {.what = "no connection can be accepted",
                                      .values = strerror(errno),
                                      .advice = "raise the limit of open files (ulimit -n)"});
  }
  if (!fd.is_open()) return {};
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  return {std::move(fd), HostPort{literal_of(address.get(), address.size_bytes), port_of(address)}.to_text()};
}

std::vector<std::string> resolve(const std::string& host, SteadyTime deadline, const std::function<void()>& poll) {
  int error = 0;
  if (look_up(host, AI_NUMERICHOST, error)) return {host};
  // getaddrinfo() takes no deadline, so it runs on a thread that may be left behind with what it writes to.
  auto result = std::make_shared<Resolution>();
  try {
    std::thread([host, deadline, result] { resolve_into(host, deadline, *result); }).detach();
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::resource, {.what = fmt::format("no thread to resolve the name {}", host),
                                      .values = error.what(),
                                      .advice = "raise the limit on threads (ulimit -u)"});
  }
  std::unique_lock lock(result->mutex);
  const auto is_done = [&] { return result->is_done; };
  while (!result->is_done_changed.wait_until(lock, std::min(deadline, steady_now() + kLookAroundInterval), is_done)) {
    if (steady_now() < deadline) {
      lock.unlock();
      if (poll) poll();
      lock.lock();
      continue;
    }
    throw Error(ErrorKind::deadline, {.what = fmt::format("the name {} was not resolved in time", host),
                                      .advice = "pass the address of rank 0's host as a number"});
  }
  if (result->literals.empty()) {
    throw Error(ErrorKind::unavailable, {.what = fmt::format("the name of rank 0's host is unknown here: {}", host),
                                         .values = ::gai_strerror(result->error),
                                         .advice = "pass a name that every rank can resolve, or the address of rank "
                                                   "0's host as a number"});
  }
  return result->literals;
}

Connected try_connect(const std::string& literal, uint16_t port, SteadyTime deadline, const std::string& source) {
  SocketAddress address;
  if (!parse_literal(literal, port, address)) return {{}, fmt::format("{} is no address", literal)};
  UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) {
    throw Error(ErrorKind::resource, {.what = "no socket can be opened", .values = strerror(errno)});
  }
  SocketAddress from;
  if (!source.empty() && parse_literal(source, 0, from) && ::bind(fd.get(), from.get(), from.size_bytes) != 0) {
    return {{}, fmt::format("from {}: {}", source, strerror(errno))};
  }
  if (::connect(fd.get(), address.get(), address.size_bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return {{}, strerror(errno)};
    if (!wait_ready(fd.get(), POLLOUT, deadline)) return {{}, "no answer"};
    int error_number = 0;
    socklen_t size = sizeof error_number;
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error_number, &size);
    if (error_number != 0) return {{}, strerror(error_number)};
  }
  // A free ephemeral port of this host can be given to the very socket that connects to it.
  if (is_self_connection(fd.get())) return {{}, strerror(ECONNREFUSED)};
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  return {std::move(fd), {}};
}

bool can_bind(const std::string& literal) {
  SocketAddress address;
  if (!parse_literal(literal, 0, address)) return false;
  const UniqueFd fd(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd.is_open() && ::bind(fd.get(), address.get(), address.size_bytes) == 0;
}

std::string route_source(const std::string& literal) {
  SocketAddress address;
  if (!parse_literal(literal, 9, address)) return {};
  const UniqueFd fd(::socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || ::connect(fd.get(), address.get(), address.size_bytes) != 0) return {};
  SocketAddress here;
  here.size_bytes = sizeof(sockaddr_storage);
  if (::getsockname(fd.get(), here.get(), &here.size_bytes) != 0) return {};
  return literal_of(here.get(), here.size_bytes);
}

}  // namespace tilewire

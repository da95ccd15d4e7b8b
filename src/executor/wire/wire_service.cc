#include "executor/wire/wire_service.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace tilewire {
namespace {

constexpr int kPollMs = 50;
constexpr std::chrono::seconds kStrangerLimit{5};  // to show the proof
constexpr size_t kMostGuests = 512;

[[noreturn]] void throw_system(const std::string& what, const std::string& socket) {
  throw Error(ErrorKind::resource, {.what = what, .where = "wire " + socket, .values = strerror(errno)});
}

UniqueFd listen_at(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    throw Error(ErrorKind::invalid_argument, {.what = "the wire needs a path for its socket",
                                              .where = "wire",
                                              .values = fmt::format("wire = {}", path),
                                              .limit = fmt::format("1 to {} bytes", sizeof(address.sun_path) - 1),
                                              .advice = "set TILEWIRE_WIRE"});
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) throw_system("no Unix socket can be opened", path);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    throw_system(errno == EADDRINUSE ? "the path of the wire's socket is taken" : "the wire's socket cannot listen",
                 path);
  }
  return fd;
}

}  // namespace

WireService::WireService(WireServiceConfig config) : config_(std::move(config)), listener_(listen_at(config_.socket)) {}

WireService::~WireService() {
  net_.reset();
  ::unlink(config_.socket.c_str());
}

void WireService::serve(std::span<const int> stops) {
  while (true) {
    std::vector<pollfd> entries;
    for (const int stop : stops) entries.push_back({stop, POLLIN, 0});
    entries.push_back({listener_.get(), POLLIN, 0});
    for (const Guest& guest : guests_) entries.push_back({guest.socket.get(), POLLIN, 0});
    if (::poll(entries.data(), entries.size(), kPollMs) < 0 && errno != EINTR) {
      throw_system("poll failed", config_.socket);
    }
    if (std::any_of(entries.begin(), entries.begin() + std::ssize(stops), [](pollfd e) { return e.revents != 0; })) {
      return;
    }
    for (Guest& guest : guests_) {
      if (!serve(guest)) guest.socket.reset();
    }
    drop_who_left();
    end_net_without_ranks();
    admit_waiting();
    accept_guests();
    check_engine();
  }
}

void WireService::accept_guests() {
  while (guests_.size() < kMostGuests) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.is_open()) return;
    Guest guest;
    guest.socket = std::move(socket);
    guest.since = steady_now();
    guest.keys.secret = config_.secret;
    guests_.push_back(std::move(guest));
  }
}

// False when the guest has left, or was a stranger, or has been told what is wrong.
bool WireService::serve(Guest& guest) {
  FdPacket packet;
  while (true) {
    const Received received = receive_packet(guest.socket.get(), packet);
    if (received == Received::nothing_yet) return true;
    if (received == Received::gone) return false;
    try {
      if (!handle(guest, packet)) return false;
    } catch (const Error& error) {
      log_warn("rank {}: {}", guest.join.rank.value, error.what());
      // Strangers are told nothing.
      if (guest.state > Guest::State::challenged) {
        send_packet(guest.socket.get(), WireFailure{error.kind(), error.what()}.pack());
      }
      return false;
    }
  }
}

bool WireService::handle(Guest& guest, FdPacket& packet) {
  switch (guest.state) {
    case Guest::State::fresh: return greet(guest, packet);
    case Guest::State::challenged: return take_join(guest, packet);
    case Guest::State::waiting: return false;
    case Guest::State::member: handle_member(guest, packet); return true;
  }
  return false;
}

// One of another version learns of it, and nothing else.
bool WireService::greet(Guest& guest, const FdPacket& packet) {
  const WireHello hello = WireHello::unpack(packet.bytes);
  if (hello.version != config_.version) {
    log_warn("a rank of version {} was refused: the wire is of {}", hello.version, config_.version);
    send_packet(guest.socket.get(), WireAnswer{.version = config_.version}.pack());
    return false;
  }
  guest.keys.from_rank = hello.challenge;
  random_bytes(guest.keys.from_wire);
  guest.state = Guest::State::challenged;
  return send_packet(guest.socket.get(),
                     WireAnswer{config_.version, guest.keys.from_wire, guest.keys.proof("wire", {})}.pack());
}

bool WireService::take_join(Guest& guest, FdPacket& packet) {
  guest.join = WireJoin::unpack(packet.bytes);
  if (!equal_in_constant_time(guest.join.proof, guest.keys.proof("rank", guest.join.content()))) {
    log_warn("somebody without the job's secret tried to join the wire");
    return false;
  }
  guest.ring = std::move(packet.fd);
  guest.state = Guest::State::waiting;
  end_net_without_ranks();
  if (!net_ || net_->is_for(guest.join)) {
    admit(guest);
    return true;
  }
  return send_packet(guest.socket.get(), pack(WirePacket::busy));
}

void WireService::admit(Guest& guest) {
  if (!net_) net_ = std::make_unique<WireNet>(config_.tools, guest.join);
  net_->add(guest.join, guest.ring);
  guest.ring.reset();
  guest.state = Guest::State::member;
  send_packet(guest.socket.get(), net_->place().pack());
  log_info("rank {} of {} has joined the wire", guest.join.rank.value, guest.join.ranks);
}

void WireService::handle_member(Guest& guest, FdPacket& packet) {
  switch (kind_of(packet.bytes)) {
    case WirePacket::piece: {
      const WirePiece piece = WirePiece::unpack(packet.bytes);
      net_->take(guest.join.rank, piece, std::move(packet.fd));
      if (piece.is_last) send_packet(guest.socket.get(), pack(WirePacket::mapped));
      return;
    }
    case WirePacket::start:
      net_->start(WireStart::unpack(packet.bytes), packet.fd);
      send_packet(guest.socket.get(), pack(WirePacket::started));
      return;
    default:
      throw Error(ErrorKind::mismatch, {.what = "a packet came out of turn",
                                        .where = "wire",
                                        .values = fmt::format("kind {}", static_cast<int>(kind_of(packet.bytes)))});
  }
}

void WireService::drop_who_left() {
  const SteadyTime now = steady_now();
  std::erase_if(guests_, [now](const Guest& guest) {
    return !guest.socket.is_open() || (guest.state <= Guest::State::challenged && now - guest.since > kStrangerLimit);
  });
}

void WireService::end_net_without_ranks() {
  if (!net_ || std::any_of(guests_.begin(), guests_.end(), [](const Guest& g) { return g.is_in_net(); })) return;
  net_.reset();
  log_info("all ranks have left the wire");
}

void WireService::admit_waiting() {
  for (Guest& guest : guests_) {
    if (guest.state != Guest::State::waiting || (net_ && !net_->is_for(guest.join))) continue;
    try {
      admit(guest);
    } catch (const Error& error) {
      send_packet(guest.socket.get(), WireFailure{error.kind(), error.what()}.pack());
      guest.socket.reset();
    }
  }
}

void WireService::check_engine() {
  const std::string trouble = net_ ? net_->trouble() : "";
  if (trouble.empty()) return;
  tell_all(Error(ErrorKind::unavailable, {.what = "the wire between the nodes has failed", .where = trouble}));
}

void WireService::tell_all(const Error& error) {
  for (Guest& guest : guests_) {
    if (guest.state < Guest::State::waiting) continue;
    send_packet(guest.socket.get(), WireFailure{error.kind(), error.what()}.pack());
  }
  throw error;
}

}  // namespace tilewire

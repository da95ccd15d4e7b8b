// Per pair of ranks, the higher one connects to the lower one's socket:
//   hello   rank, challenge            ->
//                                      <-  challenge, proof
//   proof, descriptor                  ->
//                                      <-  descriptor
// One packet each (SOCK_SEQPACKET), so a packet is whole or not there. The listening side serves all connections in one
// poll loop, so a stranger that says nothing delays nobody.
#include "transport/bootstrap/fd_exchange.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "transport/bootstrap/agreement.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/bootstrap/fd_packet.h"
#include "transport/bootstrap/message.h"

namespace tilewire {
namespace {

constexpr size_t kMaxPurposeBytes = 32;
constexpr std::chrono::milliseconds kPollInterval{50};
constexpr std::chrono::milliseconds kRetryPause{2};

using Challenge = std::array<std::byte, 32>;

struct PairKeys {
  const FdExchange* exchange;
  Rank low;
  Rank high;
  Challenge from_low{};
  Challenge from_high{};

  Digest proof(std::string_view label) const {
    ByteWriter content;
    content.text(label).text(exchange->purpose).i32(low.value).i32(high.value).raw(from_low).raw(from_high);
    return hmac_sha256(exchange->job.key, content.view());
  }
};

std::string where(const FdExchange& exchange) {
  return fmt::format("rank {}, passing descriptors for '{}'", exchange.rank.value, exchange.purpose);
}

[[noreturn]] void throw_system(const FdExchange& exchange, const std::string& what) {
  const int error_number = errno;
  const bool ran_out = error_number == EMFILE || error_number == ENFILE;
  throw Error(ErrorKind::resource, {.what = what,
                                    .where = where(exchange),
                                    .values = strerror(error_number),
                                    .advice = ran_out ? "raise the limit of open files (ulimit -n)" : ""});
}

// Asking again would be of no use: each try needs the same descriptor once more.
[[noreturn]] void throw_no_descriptor_left(const FdExchange& exchange, Rank from) {
  errno = EMFILE;
  throw_system(exchange, fmt::format("there is no descriptor left for the memory of rank {}", from.value));
}

// Waits in short steps so that `poll` is asked; false when the deadline has passed.
bool wait_step(const FdExchange& exchange, std::vector<pollfd>& entries, SteadyTime deadline) {
  if (exchange.poll) exchange.poll();
  const SteadyTime now = steady_now();
  if (now >= deadline) return false;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(std::min<std::chrono::nanoseconds>(deadline - now, kPollInterval));
  if (::poll(entries.data(), entries.size(), static_cast<int>(left.count())) < 0 && errno != EINTR) {
    throw_system(exchange, "poll failed");
  }
  return true;
}

std::pair<sockaddr_un, socklen_t> name_of(const FdExchange& exchange, Rank rank) {
  const std::string name = fmt::format("tilewire-{}-{}-{}", exchange.job.nonce_hex(), rank.value, exchange.purpose);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());  // the first byte 0 makes it abstract
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

UniqueFd open_socket(const FdExchange& exchange) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) throw_system(exchange, "no Unix socket can be opened");
  return fd;
}

UniqueFd listen_here(const FdExchange& exchange) {
  UniqueFd fd = open_socket(exchange);
  const auto [address, size] = name_of(exchange, exchange.rank);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    throw_system(exchange, errno == EADDRINUSE ? "the socket's name is taken: is this rank exchanging the same twice?"
                                               : "the Unix socket cannot listen");
  }
  return fd;
}

class Exchange {
 public:
  Exchange(const FdExchange& exchange, int own_fd, SteadyTime deadline)
      : exchange_(exchange), own_fd_(own_fd), deadline_(deadline), listener_(listen_here(exchange)) {
    got_.resize(exchange.ranks.size());
  }

  std::vector<UniqueFd> run() {
    for (const Rank rank : exchange_.ranks) {
      if (rank < exchange_.rank) fetch_from(rank);
    }
    serve_higher_ranks();
    return std::move(got_);
  }

 private:
  struct Guest {
    UniqueFd socket;
    PairKeys keys;
    bool has_said_hello = false;
  };

  UniqueFd& slot(Rank rank) {
    const auto at = std::find(exchange_.ranks.begin(), exchange_.ranks.end(), rank);
    return got_[static_cast<size_t>(at - exchange_.ranks.begin())];
  }

  [[noreturn]] void fail_by_deadline(const std::string& reason) {
    std::vector<Rank> missing;
    for (const Rank rank : exchange_.ranks) {
      if (rank != exchange_.rank && !slot(rank).is_open()) missing.push_back(rank);
    }
    throw Error(ErrorKind::deadline,
                {.what = fmt::format("no descriptor came from {} of this host", rank_list(missing)),
                 .where = where(exchange_),
                 .values = reason});
  }

  void fetch_from(Rank low) {
    std::string reason = "its socket is not there";
    while (true) {
      if (try_fetch(low, reason)) return;
      if (steady_now() >= deadline_) fail_by_deadline(reason);
      if (exchange_.poll) exchange_.poll();
      std::this_thread::sleep_for(kRetryPause);
    }
  }

  bool try_fetch(Rank low, std::string& reason) {
    const UniqueFd socket = open_socket(exchange_);
    const auto [address, size] = name_of(exchange_, low);
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0) {
      reason = strerror(errno);
      return false;
    }
    PairKeys keys{&exchange_, low, exchange_.rank, {}, {}};
    random_bytes(keys.from_high);
    if (!send_packet(socket.get(), ByteWriter().i32(exchange_.rank.value).raw(keys.from_high).take())) return false;
    FdPacket answer;
    if (!await(socket.get(), answer, reason)) return false;
    ByteReader reader(answer.bytes, "descriptor challenge");
    keys.from_low = reader.array<32>();
    if (!equal_in_constant_time(reader.array<32>(), keys.proof("low"))) {
      throw Error(ErrorKind::mismatch,
                  {.what = fmt::format("what listens in the place of rank {} is of another job", low.value),
                   .where = where(exchange_)});
    }
    if (!send_packet(socket.get(), ByteWriter().raw(keys.proof("high")).take(), own_fd_)) return false;
    FdPacket last;
    if (!await(socket.get(), last, reason)) return false;
    if (last.has_lost_fd) throw_no_descriptor_left(exchange_, low);
    slot(low) = std::move(last.fd);
    return slot(low).is_open();
  }

  bool await(int socket, FdPacket& packet, std::string& reason) {
    while (true) {
      const Received received = receive_packet(socket, packet);
      if (received == Received::packet) return true;
      if (received == Received::gone) {
        reason = "it closed the connection";
        return false;
      }
      std::vector<pollfd> entries = {{socket, POLLIN, 0}};
      if (!wait_step(exchange_, entries, deadline_)) fail_by_deadline("it does not answer");
    }
  }

  void serve_higher_ranks() {
    const auto is_missing = [&](Rank rank) { return exchange_.rank < rank && !slot(rank).is_open(); };
    while (std::any_of(exchange_.ranks.begin(), exchange_.ranks.end(), is_missing)) {
      std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
      for (const Guest& guest : guests_) entries.push_back({guest.socket.get(), POLLIN, 0});
      if (!wait_step(exchange_, entries, deadline_)) fail_by_deadline("they did not connect");
      accept_guests();
      for (size_t i = 0; i < guests_.size();) {
        if (serve(guests_[i])) {
          ++i;
        } else {
          guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
        }
      }
    }
  }

  void accept_guests() {
    while (true) {
      UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.is_open() && (errno == EMFILE || errno == ENFILE)) throw_system(exchange_, "descriptors ran out");
      if (!socket.is_open()) return;
      guests_.push_back({std::move(socket), {&exchange_, exchange_.rank, {}, {}, {}}, false});
    }
  }

  // False when the guest is done with or was a stranger.
  bool serve(Guest& guest) {
    FdPacket packet;
    const Received received = receive_packet(guest.socket.get(), packet);
    if (received != Received::packet) return received == Received::nothing_yet;
    if (guest.has_said_hello) return finish(guest, packet);
    try {
      return greet(guest, packet);
    } catch (const Error&) {  // junk
      return false;
    }
  }

  bool greet(Guest& guest, const FdPacket& packet) {
    ByteReader reader(packet.bytes, "descriptor hello");
    guest.keys.high = Rank(reader.i32());
    guest.keys.from_high = reader.array<32>();
    reader.finish();
    random_bytes(guest.keys.from_low);
    guest.has_said_hello = true;
    return send_packet(guest.socket.get(), ByteWriter().raw(guest.keys.from_low).raw(guest.keys.proof("low")).take());
  }

  bool finish(Guest& guest, FdPacket& packet) {
    const Rank rank = guest.keys.high;
    const bool is_expected = std::count(exchange_.ranks.begin(), exchange_.ranks.end(), rank) == 1 &&
                             exchange_.rank < rank && (packet.fd.is_open() || packet.has_lost_fd);
    if (!is_expected || !equal_in_constant_time(packet.bytes, guest.keys.proof("high"))) return false;
    if (packet.has_lost_fd) throw_no_descriptor_left(exchange_, rank);
    if (send_packet(guest.socket.get(), to_bytes("descriptor"), own_fd_)) slot(rank) = std::move(packet.fd);
    return false;
  }

  const FdExchange& exchange_;
  int own_fd_;
  SteadyTime deadline_;
  UniqueFd listener_;
  std::vector<Guest> guests_;
  std::vector<UniqueFd> got_;
};

void check(const FdExchange& exchange, int own_fd) {
  const auto fail = [&](std::string what, std::string values) {
    throw Error(ErrorKind::invalid_argument,
                {.what = std::move(what), .where = where(exchange), .values = std::move(values)});
  };
  if (std::count(exchange.ranks.begin(), exchange.ranks.end(), exchange.rank) != 1) {
    fail("this rank is not once among the ranks of its host", rank_list(exchange.ranks));
  }
  if (::fcntl(own_fd, F_GETFD) < 0) fail("the descriptor to pass is not open", fmt::format("fd {}", own_fd));
  if (exchange.purpose.size() > kMaxPurposeBytes) {
    fail("the purpose is too long for a socket's name", fmt::format("{} bytes", exchange.purpose.size()));
  }
}

}  // namespace

std::vector<UniqueFd> exchange_fds(const FdExchange& exchange, int own_fd, SteadyTime deadline) {
  check(exchange, own_fd);
  return Exchange(exchange, own_fd, deadline).run();
}

}  // namespace tilewire

#include "transport/emulated/wire_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "transport/bootstrap/fork_guard.h"
#include "transport/bootstrap/message.h"

namespace tilewire {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};
constexpr std::chrono::milliseconds kRetryPause{5};

[[noreturn]] void throw_system(const char* what, const std::string& where) {
  throw Error(ErrorKind::resource, {.what = what, .where = where, .values = strerror(errno)});
}

SteadyTime soon(SteadyTime deadline) { return std::min(deadline, steady_now() + kPollInterval); }

}  // namespace

WireLink::WireLink(WireLinkConfig config, SteadyTime deadline) : config_(std::move(config)) {
  make_ring();
  connect(deadline);
  join(deadline);
  stop_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!stop_.is_open()) throw_system("no eventfd can be made", where());
  close_in_child(socket_.get());
  watcher_ = std::thread([this] { watch(); });
}

WireLink::~WireLink() { close(); }

std::string WireLink::where() const { return fmt::format("rank {}, wire {}", config_.rank.value, config_.socket); }

void WireLink::make_ring() {
  const auto bytes = static_cast<int64_t>(WireRing::bytes(config_.ring_entries));
  ring_file_.reset(::memfd_create("tilewire wire ring", MFD_CLOEXEC));
  if (!ring_file_.is_open() || ::ftruncate(ring_file_.get(), bytes) != 0) {
    throw_system("no memory file for the wire ring can be made", where());
  }
  ring_memory_ = Mapping::share(ring_file_.get(), bytes, where(), "wire ring");
  ring_ = WireRing::at(ring_memory_.base(), config_.ring_entries);
}

// The wire may be starting still.
void WireLink::connect(SteadyTime deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (config_.socket.size() >= sizeof(address.sun_path)) {
    throw Error(ErrorKind::invalid_argument, {.what = "the path of the wire's socket is too long",
                                              .where = where(),
                                              .values = fmt::format("{} bytes", config_.socket.size()),
                                              .limit = fmt::format("{} bytes", sizeof(address.sun_path) - 1),
                                              .advice = "set TILEWIRE_WIRE to a shorter one"});
  }
  std::memcpy(address.sun_path, config_.socket.data(), config_.socket.size());
  while (true) {
    socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_.is_open()) throw_system("no Unix socket can be opened", where());
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return;
    const std::string reason = strerror(errno);
    if (config_.poll) config_.poll();
    if (steady_now() + kRetryPause >= deadline) {
      throw Error(ErrorKind::deadline, {.what = "the wire process does not take connections",
                                        .where = where(),
                                        .values = reason,
                                        .limit = "",
                                        .advice = "start the ranks with `tilewire run --virtual`"});
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

void WireLink::send(const Bytes& packet, int fd) {
  if (send_packet(socket_.get(), packet, fd)) return;
  if (watcher_.joinable()) {  // it knows why
    std::unique_lock lock(mutex_);
    has_news_.wait_for(lock, std::chrono::seconds(1), [this] { return lost_.has_value(); });
    lock.unlock();
    throw_if_lost();
  }
  throw Error(ErrorKind::peer_lost, {.what = "the wire process has closed the connection", .where = where()});
}

FdPacket WireLink::receive(SteadyTime deadline) {
  FdPacket packet;
  while (true) {
    const Received received = receive_packet(socket_.get(), packet);
    if (received == Received::gone) {
      throw Error(ErrorKind::peer_lost,
                  {.what = "the wire process has closed the connection",
                   .where = where(),
                   .advice = "give it and all ranks the same TILEWIRE_SECRET and the same version of Tilewire"});
    }
    if (received == Received::packet && kind_of(packet.bytes) == WirePacket::failed) {
      const WireFailure failure = WireFailure::unpack(packet.bytes);
      throw Error(failure.kind, {.what = failure.text, .where = where()});
    }
    if (received == Received::packet) return packet;
    if (config_.poll) config_.poll();
    if (steady_now() >= deadline) fail_by_deadline("this rank's joining");
    wait_ready(socket_.get(), POLLIN, soon(deadline));
  }
}

void WireLink::fail_by_deadline(const char* what) const {
  throw Error(ErrorKind::deadline, {.what = is_busy_ ? "the wire process still serves another communicator"
                                                     : fmt::format("the wire process does not answer to {}", what),
                                    .where = where(),
                                    .values = "",
                                    .limit = "",
                                    .advice = is_busy_ ? "close that on all its ranks first" : ""});
}

void WireLink::join(SteadyTime deadline) {
  WireJoin join{.job = config_.job,
                .rank = config_.rank,
                .ranks = config_.ranks,
                .arena_bytes = config_.arena_bytes,
                .ring_entries = config_.ring_entries};
  prove(join, deadline);
  send(join.pack(), ring_file_.get());
  FdPacket packet = receive(deadline);
  while (kind_of(packet.bytes) == WirePacket::busy) {
    is_busy_ = true;
    packet = receive(deadline);
  }
  is_busy_ = false;
  place_ = WirePlace::unpack(packet.bytes);
}

// Both sides have seen each other's proof before any memory is passed.
void WireLink::prove(WireJoin& join, SteadyTime deadline) {
  WireKeys keys{.secret = config_.secret};
  random_bytes(keys.from_rank);
  send(WireHello{.version = config_.version, .challenge = keys.from_rank}.pack());
  const WireAnswer answer = WireAnswer::unpack(receive(deadline).bytes);
  if (answer.version != config_.version) {
    throw Error(ErrorKind::mismatch, {.what = "the wire process is of another version of Tilewire",
                                      .where = where(),
                                      .values = fmt::format("{} there, {} here", answer.version, config_.version),
                                      .limit = "must be equal"});
  }
  keys.from_wire = answer.challenge;
  if (!equal_in_constant_time(answer.proof, keys.proof("wire", {}))) {
    throw Error(ErrorKind::mismatch, {.what = "what listens in the place of the wire is of another job",
                                      .where = where(),
                                      .values = "",
                                      .limit = "",
                                      .advice = "give it and all ranks the same TILEWIRE_SECRET"});
  }
  join.proof = keys.proof("rank", join.content());
}

void WireLink::add(std::span<const ArenaExport> pieces, SteadyTime deadline) {
  if (pieces.empty()) return;
  throw_if_lost();
  for (size_t i = 0; i < pieces.size(); ++i) {
    send(WirePiece{.range = pieces[i].range, .is_last = i + 1 == pieces.size()}.pack(), pieces[i].fd);
  }
  expect_answer(WirePacket::mapped, "memory of this rank", deadline);
}

void WireLink::ask_start(const WireStart& start, int page) {
  throw_if_lost();
  send(start.pack(), page);
}

void WireLink::await_start(SteadyTime deadline) { expect_answer(WirePacket::started, "its start", deadline); }

void WireLink::expect_answer(WirePacket kind, const char* what, SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  while (answers_.empty() && !lost_) {
    if (steady_now() >= deadline) fail_by_deadline(what);
    has_news_.wait_until(lock, soon(deadline));
    if (!config_.poll) continue;
    lock.unlock();
    config_.poll();
    lock.lock();
  }
  if (answers_.empty()) {
    lock.unlock();
    throw_if_lost();
  }
  const FdPacket answer = std::move(answers_.front());
  answers_.pop_front();
  if (kind_of(answer.bytes) == kind) return;
  throw Error(ErrorKind::mismatch, {.what = "the wire process answers out of turn", .where = where()});
}

void WireLink::throw_if_lost() {
  const std::lock_guard lock(mutex_);
  if (lost_) throw Error(lost_->kind, {.what = lost_->text, .where = where()});
}

// Everything that comes once this rank has joined.
void WireLink::watch() {
  std::array<pollfd, 2> entries = {{{socket_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
  while (true) {
    if (::poll(entries.data(), entries.size(), -1) < 0) continue;
    if (entries[1].revents != 0) return;
    FdPacket packet;
    const Received received = receive_packet(socket_.get(), packet);
    if (received == Received::nothing_yet) continue;
    if (received == Received::gone) {
      return note_lost({ErrorKind::peer_lost, "the wire process between the nodes is gone"});
    }
    try {
      if (kind_of(packet.bytes) == WirePacket::failed) return note_lost(WireFailure::unpack(packet.bytes));
    } catch (const Error& error) {
      return note_lost({error.kind(), error.what()});
    }
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(packet));
    has_news_.notify_all();
  }
}

void WireLink::note_lost(const WireFailure& failure) {
  {
    const std::lock_guard lock(mutex_);
    lost_ = failure;
    has_news_.notify_all();
  }
  if (wait_ready(stop_.get(), POLLIN, steady_now() + kGrace)) return;
  if (config_.on_lost) config_.on_lost(failure);
}

void WireLink::close() noexcept {
  if (!socket_.is_open()) return;
  if (watcher_.joinable()) {
    const uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof(one)) < 0) log_error("the wire's watcher cannot be told to stop");
    watcher_.join();
    remove_from_child_close(socket_.get());
  }
  socket_.reset();
}

}  // namespace tilewire

#include "transport/bootstrap/message.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace tilewire {
namespace {

constexpr uint32_t kMagic = 0x4d4c5754;  // "TWLM" in the order of the wire
constexpr size_t kReadBytes = size_t{64} << 10;
constexpr size_t kShownBytes = 8;          // of what is no message of ours
constexpr size_t kCompactBytes = 1 << 20;  // bytes already used up at the front of a buffer before it is moved

struct Header {
  uint16_t type = 0;
  uint16_t filler = 0;
  uint32_t magic = 0;
  uint32_t length_bytes = 0;
};

Header parse_header(std::span<const std::byte> in) {
  ByteReader reader(in.first(kMessageHeaderBytes), "header");
  Header header;
  header.magic = reader.u32();
  header.type = reader.u16();
  header.filler = reader.u16();
  header.length_bytes = reader.u32();
  return header;
}

// `"HTTP/1.1"`, or "16 03 01 00 7a 02 00 00" of what is no text.
std::string shown(std::span<const std::byte> bytes) {
  const auto is_text = [](std::byte b) { return b >= std::byte{' '} && b <= std::byte{'~'}; };
  std::string text, numbers;
  for (const std::byte b : bytes) {
    text += static_cast<char>(b);
    numbers += fmt::format("{}{:02x}", numbers.empty() ? "" : " ", static_cast<unsigned>(b));
  }
  return std::all_of(bytes.begin(), bytes.end(), is_text) ? "\"" + text + "\"" : numbers;
}

int poll_timeout_ms(SteadyTime deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

void drop_front(Bytes& buffer, size_t& at) {
  if (at == buffer.size()) {
    buffer.clear();
  } else if (at >= kCompactBytes) {
    buffer.erase(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(at));
  } else {
    return;
  }
  at = 0;
}

}  // namespace

bool wait_ready(int fd, short events, SteadyTime deadline) {
  while (true) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, poll_timeout_ms(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) {
      throw Error(ErrorKind::resource, {.what = "poll failed", .values = strerror(errno)});
    }
    if (steady_now() >= deadline) return false;
  }
}

MessageSocket::MessageSocket(UniqueFd fd, std::string peer, size_t max_payload_bytes)
    : fd_(std::move(fd)), peer_(std::move(peer)), max_payload_bytes_(max_payload_bytes) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, flags | O_NONBLOCK) < 0) fail("cannot be made non-blocking", errno);
}

void MessageSocket::close() {
  if (fd_.is_open()) ::shutdown(fd_.get(), SHUT_RDWR);  // a forked child may hold the descriptor too
  fd_.reset();
}

void MessageSocket::fail(const char* what, int error_number) const {
  throw Error(ErrorKind::peer_lost,
              {.what = fmt::format("the connection to {} {}", peer_, what),
               .values = error_number == 0 ? std::string() : std::string(strerror(error_number))});
}

void MessageSocket::send(uint16_t type, std::span<const std::byte> payload, SteadyTime deadline) {
  queue(type, payload);
  while (!flush()) {
    if (!wait_ready(fd_.get(), POLLOUT, deadline)) {
      throw Error(ErrorKind::deadline, {.what = fmt::format("{} does not take what is sent to it", peer_),
                                        .values = fmt::format("{} bytes not sent", queued_bytes())});
    }
  }
}

Message MessageSocket::receive(SteadyTime deadline) {
  if (auto message = next()) return *std::move(message);
  while (true) {
    if (!wait_ready(fd_.get(), POLLIN, deadline)) {
      throw Error(ErrorKind::deadline, {.what = fmt::format("no answer from {}", peer_),
                                        .values = fmt::format("{} bytes of a message had come", in_.size() - in_at_)});
    }
    const bool is_connected = fill();
    if (auto message = next()) return *std::move(message);
    if (!is_connected) fail("was closed by the other side", 0);
  }
}

void MessageSocket::queue(uint16_t type, std::span<const std::byte> payload) {
  if (payload.size() > max_payload_bytes_) {
    throw Error(ErrorKind::invalid_argument, {.what = fmt::format("a message to {} is too long", peer_),
                                              .values = fmt::format("{} bytes", payload.size()),
                                              .limit = fmt::format("at most {} bytes", max_payload_bytes_)});
  }
  const Bytes header = ByteWriter().u32(kMagic).u16(type).u16(0).u32(static_cast<uint32_t>(payload.size())).take();
  out_.insert(out_.end(), header.begin(), header.end());
  out_.insert(out_.end(), payload.data(), payload.data() + payload.size());
}

bool MessageSocket::flush() {
  while (out_at_ < out_.size()) {
    const ssize_t sent = ::send(fd_.get(), out_.data() + out_at_, out_.size() - out_at_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      out_at_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      fail("broke while sending", errno);
    }
  }
  drop_front(out_, out_at_);
  return out_at_ == out_.size();
}

bool MessageSocket::fill() {
  std::array<std::byte, kReadBytes> chunk;
  // Bounded work a call, so that one talkative peer cannot keep a poll loop busy.
  for (int turn = 0; turn < 16; ++turn) {
    const ssize_t got = ::recv(fd_.get(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got == 0) return false;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      fail("broke while receiving", errno);
    }
    in_.insert(in_.end(), chunk.data(), chunk.data() + got);
    check_header();
  }
  return true;
}

void MessageSocket::check_header() const {
  if (in_.size() - in_at_ < kMessageHeaderBytes) return;
  const Header header = parse_header(std::span(in_).subspan(in_at_));
  if (header.magic != kMagic || header.filler != 0) {
    const auto first = std::span(in_).subspan(in_at_, kShownBytes);
    throw Error(ErrorKind::mismatch, {.what = fmt::format("{} does not speak Tilewire's protocol", peer_),
                                      .values = fmt::format("first bytes {}", shown(first))});
  }
  if (header.length_bytes > max_payload_bytes_) {
    throw Error(ErrorKind::mismatch, {.what = fmt::format("{} announces a message that is too long", peer_),
                                      .values = fmt::format("{} bytes of type {}", header.length_bytes, header.type),
                                      .limit = fmt::format("at most {} bytes", max_payload_bytes_)});
  }
}

std::optional<Message> MessageSocket::next() {
  if (in_.size() - in_at_ < kMessageHeaderBytes) return std::nullopt;
  check_header();
  const Header header = parse_header(std::span(in_).subspan(in_at_));
  const size_t end = in_at_ + kMessageHeaderBytes + header.length_bytes;
  if (in_.size() < end) return std::nullopt;
  Message message{header.type, {}};
  message.payload.assign(in_.begin() + static_cast<std::ptrdiff_t>(in_at_ + kMessageHeaderBytes),
                         in_.begin() + static_cast<std::ptrdiff_t>(end));
  in_at_ = end;
  drop_front(in_, in_at_);
  return message;
}

}  // namespace tilewire

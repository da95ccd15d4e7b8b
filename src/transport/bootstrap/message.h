// Framed messages over a non-blocking stream socket.
//
// Frame: magic (4 bytes), type (2), zero (2), payload length (4), payload. A length above the limit, a wrong magic or a
// non-zero filler is an error before anything is allocated, so a stranger's bytes cost at most one header.
//
// Thread-safety: one thread uses a MessageSocket at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/unique_fd.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

struct Message {
  uint16_t type = 0;
  Bytes payload;
};

inline constexpr size_t kMessageHeaderBytes = 12;

class MessageSocket {
 public:
  MessageSocket() = default;
  // Takes a connected socket and makes it non-blocking. `peer` names the other side in errors. Payloads above
  // max_payload_bytes are refused in both directions.
  MessageSocket(UniqueFd fd, std::string peer, size_t max_payload_bytes);

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  const std::string& peer() const { return peer_; }
  void rename_peer(std::string peer) { peer_ = std::move(peer); }
  void set_max_payload_bytes(size_t limit) { max_payload_bytes_ = limit; }
  void close();

  // Blocking forms. Throw Error(deadline) when the time is over, Error(peer_lost) at end-of-file or a reset,
  // Error(invalid_argument) for a payload above the limit, Error(mismatch) for bytes that are no Tilewire message.
  void send(uint16_t type, std::span<const std::byte> payload, SteadyTime deadline);
  Message receive(SteadyTime deadline);

  // Non-blocking forms, for a poll loop. queue() only stores; flush() writes what the socket takes and says whether
  // all is out. fill() reads what is there and says whether the stream is still open; next() gives the next whole
  // message already read. Same errors, except that end-of-file is fill() returning false.
  void queue(uint16_t type, std::span<const std::byte> payload);
  bool flush();
  bool fill();
  std::optional<Message> next();
  size_t queued_bytes() const { return out_.size() - out_at_; }

 private:
  [[noreturn]] void fail(const char* what, int error_number) const;
  void check_header() const;

  UniqueFd fd_;
  std::string peer_;
  size_t max_payload_bytes_ = 0;
  Bytes in_;
  size_t in_at_ = 0;
  Bytes out_;
  size_t out_at_ = 0;
};

// Waits until `events` (POLLIN, POLLOUT) are ready on fd, or errors are pending there; false when the deadline came
// first. Signals do not cut it short.
bool wait_ready(int fd, short events, SteadyTime deadline);

}  // namespace tilewire

// A rank's connection to the wire process, which moves data between nodes that share a GPU (wire_protocol.h): it gives
// the wire the rank's memory, and the ring by which a WireWriter says what goes where.
//
// Thread-safety: add(), ask_start() and await_start() by one thread at a time; close() when none of them runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "memory/mapping.h"
#include "schedule/wire_ring.h"
#include "transport/bootstrap/fd_packet.h"
#include "transport/bootstrap/steady_time.h"
#include "transport/emulated/wire_protocol.h"

namespace tilewire {

struct WireLinkConfig {
  std::string socket;  // its path
  std::string secret;
  std::string version;  // of the library
  Nonce job{};
  Rank rank{};
  int32_t ranks = 0;
  int64_t arena_bytes = 0;                            // reserved
  uint32_t ring_entries = 1024;                       // a power of two
  std::function<void()> poll{};                       // at least every 50 ms while waiting; throws to give up
  std::function<void(const WireFailure&)> on_lost{};  // once, when the wire is gone; on a thread of the link
};

class WireLink {
 public:
  // Joins. Throws Error(deadline) that says what was waited for, Error(mismatch) for a wire of another job or version,
  // Error(resource), what the wire refuses with, and what `poll` throws.
  WireLink(WireLinkConfig config, SteadyTime deadline);
  ~WireLink();
  WireLink(const WireLink&) = delete;
  WireLink& operator=(const WireLink&) = delete;

  const WirePlace& place() const { return place_; }
  const WireRing& ring() const { return ring_; }
  // Pieces of the own arena that the wire does not know yet; when it returns it moves from and to them.
  void add(std::span<const ArenaExport> pieces, SteadyTime deadline);
  // By one rank of all, when all have added theirs: asks for the start, and waits for it. `page`: the memory of the
  // roll-call, -1 without one.
  void ask_start(const WireStart& start, int page);
  void await_start(SteadyTime deadline);
  // Leaves. The ring stays as long as the object. Idempotent.
  void close() noexcept;

  // A death that took the wire with it, as that of a rank can, is told by the control connection; the link waits so
  // long before it says on its own that the wire is gone.
  static constexpr std::chrono::milliseconds kGrace{500};

 private:
  void make_ring();
  void connect(SteadyTime deadline);
  void join(SteadyTime deadline);
  void prove(WireJoin& join, SteadyTime deadline);
  void send(const Bytes& packet, int fd = -1);
  FdPacket receive(SteadyTime deadline);  // while nobody watches
  void expect_answer(WirePacket kind, const char* what, SteadyTime deadline);
  void watch();
  void note_lost(const WireFailure& failure);
  void throw_if_lost();
  [[noreturn]] void fail_by_deadline(const char* what) const;
  std::string where() const;

  WireLinkConfig config_;
  UniqueFd ring_file_;
  Mapping ring_memory_;
  WireRing ring_;
  WirePlace place_;
  UniqueFd socket_;
  UniqueFd stop_;  // an eventfd
  bool is_busy_ = false;
  std::mutex mutex_;  // guards what follows
  std::condition_variable has_news_;
  std::deque<FdPacket> answers_;
  std::optional<WireFailure> lost_;
  std::thread watcher_;
};

}  // namespace tilewire

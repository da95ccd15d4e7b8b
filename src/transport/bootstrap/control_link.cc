#include "transport/bootstrap/control_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/bootstrap/fork_guard.h"

namespace tilewire {
namespace {

// A peer that takes nothing for so long that this piles up is as good as dead.
constexpr size_t kMaxQueuedBytes = size_t{256} << 20;
constexpr size_t kHeartbeatPastBytes = size_t{64} << 10;  // more is stored already: a heartbeat would only add to it

}  // namespace

ControlLink::ControlLink(Rendezvous& joined, const Limits& limits)
    : limits_(limits), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_.is_open()) {
    throw Error(ErrorKind::resource, {.what = "no eventfd for the control connection", .values = strerror(errno)});
  }
  next_heartbeat_ = last_turn_ = steady_now();
  const auto add = [this](Rank rank, MessageSocket& socket) {
    if (!socket.is_open()) return;
    socket.set_max_payload_bytes(limits_.max_message_bytes);
    close_in_child(socket.fd());
    lines_.push_back({rank, std::move(socket), last_turn_, false});
  };
  for (size_t i = 0; i < joined.to_ranks.size(); ++i) add(Rank(static_cast<int32_t>(i)), joined.to_ranks[i]);
  add(Rank(0), joined.to_root);
}

ControlLink::~ControlLink() { drop_all(); }

void ControlLink::drop_all() {
  for (Line& line : lines_) drop(line);
}

void ControlLink::drop(Line& line) {
  if (!line.socket.is_open()) return;
  remove_from_child_close(line.socket.fd());
  line.socket.close();
}

void ControlLink::wake() {
  if (!wake_.is_open()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);  // full means awake already
}

bool ControlLink::is_connected(Rank rank) const {
  return std::any_of(lines_.begin(), lines_.end(),
                     [&](const Line& line) { return line.rank == rank && line.socket.is_open() && !line.is_lost; });
}

void ControlLink::send(Rank to, const ControlRecord& record) {
  for (Line& line : lines_) {
    if (line.rank == to && line.socket.is_open()) {
      line.socket.queue(static_cast<uint16_t>(record.type), record.pack());
    }
  }
}

void ControlLink::turn(SteadyTime until, const OnRecord& on_record, const OnLost& on_lost) {
  for (Line& line : lines_) write(line, on_lost);
  wait(std::min(until, next_heartbeat_));
  for (Line& line : lines_) read(line, on_record, on_lost);
  judge_silence(on_lost);
  send_heartbeats();
  for (Line& line : lines_) write(line, on_lost);
}

void ControlLink::wait(SteadyTime until) {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  for (const Line& line : lines_) {
    if (!line.socket.is_open()) continue;
    const short write_event = line.socket.queued_bytes() > 0 ? POLLOUT : 0;
    entries.push_back({line.socket.fd(), static_cast<short>(POLLIN | write_event), 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - steady_now()).count();
  const int ready = ::poll(entries.data(), entries.size(), static_cast<int>(std::clamp<int64_t>(left, 0, 60'000)));
  if (ready < 0 && errno != EINTR) {
    throw Error(ErrorKind::resource, {.what = "the control connection cannot wait", .values = strerror(errno)});
  }
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
}

void ControlLink::read(Line& line, const OnRecord& on_record, const OnLost& on_lost) {
  if (!line.socket.is_open()) return;
  try {
    const bool is_open = line.socket.fill();
    while (auto message = line.socket.next()) {
      line.heard = steady_now();
      on_record(line.rank, ControlRecord::unpack(message->type, message->payload));
    }
    if (is_open) return;
    lose(line, "its connection was closed without a goodbye (the process died, or dropped its communicator)", on_lost);
  } catch (const Error& error) {
    lose(line, error.parts().values.empty() ? error.parts().what : error.parts().what + ": " + error.parts().values,
         on_lost);
  }
  drop(line);
}

void ControlLink::write(Line& line, const OnLost& on_lost) {
  if (!line.socket.is_open()) return;
  try {
    line.socket.flush();
    if (line.socket.queued_bytes() <= std::max(kMaxQueuedBytes, 4 * limits_.max_message_bytes)) return;
    lose(line, fmt::format("it takes nothing any more, {} bytes wait for it", line.socket.queued_bytes()), on_lost);
    drop(line);
  } catch (const Error&) {
    // What the peer said before it went must still be read; reading then finds the end too. POLLIN is pending, so
    // this does not spin: what is stored for it is never going out.
  }
}

void ControlLink::lose(Line& line, const std::string& reason, const OnLost& on_lost) {
  if (line.is_lost) return;
  line.is_lost = true;
  on_lost(line.rank, reason);
}

void ControlLink::judge_silence(const OnLost& on_lost) {
  const SteadyTime now = steady_now();
  const SteadyTime previous = std::exchange(last_turn_, now);
  // A process that was itself stopped, or starved, has no right to judge the others' silence.
  const bool was_asleep = now - previous > std::max(limits_.death / 2, 2 * limits_.heartbeat);
  for (Line& line : lines_) {
    if (was_asleep) line.heard = now;
    if (!line.socket.is_open() || now - line.heard <= limits_.death) continue;
    const double silence_s = std::chrono::duration<double>(now - line.heard).count();
    lose(line, fmt::format("nothing was heard from it for {:.1f} s (stopped, starved, or its host is gone)", silence_s),
         on_lost);
  }
}

void ControlLink::send_heartbeats() {
  const SteadyTime now = steady_now();
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + limits_.heartbeat;
  for (Line& line : lines_) {
    if (line.socket.is_open() && line.socket.queued_bytes() < kHeartbeatPastBytes) {
      line.socket.queue(static_cast<uint16_t>(ControlType::heartbeat), {});
    }
  }
}

void ControlLink::drain(Line& line) {
  try {
    line.socket.flush();
    if (line.socket.queued_bytes() == 0) ::shutdown(line.socket.fd(), SHUT_WR);
    const bool is_open = line.socket.fill();
    while (line.socket.next()) {
    }
    if (!is_open) drop(line);
  } catch (const Error&) {
    drop(line);
  }
}

void ControlLink::finish(SteadyTime deadline) {
  while (true) {
    for (Line& line : lines_) {
      if (line.socket.is_open()) drain(line);
    }
    const bool is_done =
        std::none_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.socket.is_open(); });
    if (is_done || steady_now() >= deadline) break;
    std::vector<pollfd> entries;
    for (const Line& line : lines_) {
      if (line.socket.is_open()) entries.push_back({line.socket.fd(), POLLIN, 0});
    }
    ::poll(entries.data(), entries.size(), 10);
  }
  drop_all();
}

}  // namespace tilewire

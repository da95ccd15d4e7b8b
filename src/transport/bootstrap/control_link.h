// The sockets of one rank's control connection as its monitor thread sees them: wait, read, write, and notice who has
// fallen silent. One thread uses it, except wake().
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "transport/bootstrap/control_record.h"
#include "transport/bootstrap/message.h"
#include "transport/bootstrap/rendezvous.h"

namespace tilewire {

class ControlLink {
 public:
  struct Limits {
    std::chrono::milliseconds heartbeat;
    std::chrono::milliseconds death;
    size_t max_message_bytes;
  };
  using OnRecord = std::function<void(Rank from, ControlRecord record)>;
  using OnLost = std::function<void(Rank rank, const std::string& reason)>;

  // Takes the sockets out of `joined`.
  ControlLink(Rendezvous& joined, const Limits& limits);
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // Waits for something to read, room to write, a wake() or `until`; then reads, writes, sends heartbeats that are due
  // and reports records and losses. A rank is reported lost once.
  void turn(SteadyTime until, const OnRecord& on_record, const OnLost& on_lost);
  // Stores for the next turn; nothing happens when that connection is gone.
  void send(Rank to, const ControlRecord& record);
  void wake();  // from any thread; nothing happens after stop_waking()
  // When no turn() can come any more. Not beside wake().
  void stop_waking() { wake_.reset(); }

  bool is_connected(Rank rank) const;
  // Ends every connection in an orderly way: writes what is stored, says end-of-file, and waits for the other sides' up
  // to the deadline, because closing with unread bytes would reset the connection and lose what was written.
  void finish(SteadyTime deadline);
  void drop_all();  // at once

 private:
  struct Line {
    Rank rank;
    MessageSocket socket;
    SteadyTime heard;
    bool is_lost = false;
  };

  void wait(SteadyTime until);
  void read(Line& line, const OnRecord& on_record, const OnLost& on_lost);
  void write(Line& line, const OnLost& on_lost);
  void lose(Line& line, const std::string& reason, const OnLost& on_lost);
  void drop(Line& line);
  void judge_silence(const OnLost& on_lost);
  void send_heartbeats();
  void drain(Line& line);

  Limits limits_;
  std::vector<Line> lines_;  // on rank 0 one a rank but itself; on the others one
  UniqueFd wake_;
  SteadyTime next_heartbeat_;
  SteadyTime last_turn_;
};

}  // namespace tilewire

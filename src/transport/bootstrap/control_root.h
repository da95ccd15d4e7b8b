// What rank 0 decides for all: who has contributed to a gather, which abort was the first, who is gone. Pure logic: no
// socket, no lock; time is passed in. Runs on rank 0's monitor thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "transport/bootstrap/control_record.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

class ControlRoot {
 public:
  // `send` must not call back into this object; rank 0's own records come to it like the others'.
  using Send = std::function<void(Rank to, const ControlRecord& record)>;
  ControlRoot(int32_t world_size, Send send);

  void on_record(Rank from, ControlRecord record, SteadyTime now);
  // The connection is gone without a goodbye, or silent for too long. Ignored after a goodbye.
  void on_lost(Rank rank, const std::string& reason);
  // Notices and questions that are due.
  void on_tick(SteadyTime now);

  // When on_tick() has something to do, if ever.
  std::optional<SteadyTime> next_tick() const;

  // No rank but 0 is left to serve.
  bool are_others_gone() const;

 private:
  struct Peer {
    bool is_left = false;
    bool is_lost = false;
    std::optional<ControlRecord> gather;   // waiting for the others'
    std::optional<ControlRecord> refusal;  // its latest
  };
  struct Question {
    uint64_t call = 0;
    uint64_t hash_of_peer = 0;
    uint64_t sequence = 0;
    Rank reporter;
    Rank peer;
    CallText own;
    SteadyTime until;
  };

  Peer& peer(Rank rank) { return peers_[static_cast<size_t>(rank.value)]; }
  const Peer& peer(Rank rank) const { return peers_[static_cast<size_t>(rank.value)]; }
  void on_gather(Rank from, ControlRecord record, SteadyTime now);
  void on_refused(Rank from, ControlRecord record);
  void on_goodbye(Rank from, uint64_t last_ended);
  void on_expired(Rank from, const ControlRecord& record);
  void on_mismatch(Rank from, const ControlRecord& record, SteadyTime now);
  void on_answer(Rank from, const ControlRecord& record);
  void finish_gather();
  void tell_who_is_late(SteadyTime now);
  void fail_gathers_of_left();
  void conclude(const Question& question, const CallText& theirs);
  void abort(Rank rank, ErrorKind kind, const std::string& text);
  void broadcast(const ControlRecord& record, std::optional<Rank> except);
  std::vector<Rank> ranks_without_gather() const;
  std::optional<std::string> refusal_text(Rank peer, Rank waiting, uint64_t call) const;
  static std::string difference_text(const ControlRecord& a, const ControlRecord& b);
  static std::string gather_text(const ControlRecord& gather);

  Send send_;
  std::vector<Peer> peers_;
  std::vector<Question> questions_;
  uint64_t next_question_ = 1;
  std::optional<Rank> first_in_gather_;
  SteadyTime notice_at_{};
  bool is_notice_sent_ = false;
  SteadyTime silent_until_{};
  bool is_lateness_told_ = false;
  bool is_aborted_ = false;
};

}  // namespace tilewire

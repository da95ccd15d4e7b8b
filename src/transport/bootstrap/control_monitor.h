// The inside of a ControlConnection: the state shared with its callers and the monitor thread's loop.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "transport/bootstrap/control.h"
#include "transport/bootstrap/control_link.h"
#include "transport/bootstrap/control_record.h"
#include "transport/bootstrap/control_root.h"

namespace tilewire {

class ControlConnection::Monitor {
 public:
  Monitor(Rendezvous joined, const ControlOptions& options, ControlCallbacks callbacks);
  ~Monitor();  // stops without a word

  const Rendezvous& joined() const { return joined_; }
  bool is_of_this_process() const;

  std::vector<Bytes> allgather(const GatherTag& tag, Bytes mine, SteadyTime deadline);
  void begin_call(uint64_t call, CallTextRef text);
  void describe_call(uint64_t call, CallTextRef text);
  void enter_call(uint64_t call);
  void end_call(uint64_t call);
  void refuse_call(uint64_t call, const std::string& text);
  void await_refusals(SteadyTime deadline);
  void report_mismatch(uint64_t call, Rank peer, const CallText& own, uint64_t hash_of_peer);
  void send_abort(ErrorKind kind, const std::string& text);
  std::optional<AbortNotice> aborted();
  void throw_if_aborted();
  bool has_left(Rank rank);
  void throw_if_forked() const;  // before the lock, which the parent may have held
  void close();

 private:
  enum class Phase { running, closing, stopping, stopped };
  using Lock = std::unique_lock<std::mutex>;
  struct Gather {
    bool is_busy = false;
    bool is_done = false;
    uint64_t sequence = 0;
    uint64_t call = 0;  // that it is a step of, or 0
    std::vector<Bytes> parts;
    std::optional<CallFault> fault;
  };

  // For callers, under the lock.
  bool is_root() const { return joined_.rank == Rank(0); }
  [[noreturn]] void throw_abort() const;
  void throw_if_dead(const Lock& lock) const;
  void post(ControlRecord record);
  void raise(const CallFault& fault);
  void throw_if_ended(Lock& lock);
  [[noreturn]] void raise_and_throw(Lock& lock, const CallFault& fault);
  [[noreturn]] void await_and_throw(Lock& lock, const CallFault& fault);
  void check_gather_size(const GatherTag& tag, size_t own_bytes) const;
  void start_gather(Lock& lock, const GatherTag& tag, Bytes mine);
  void report_expired(Lock& lock, const GatherTag& tag, std::chrono::nanoseconds waited);
  [[noreturn]] void raise_expired(Lock& lock, const GatherTag& tag, std::chrono::nanoseconds waited);

  // On the monitor thread, without the lock.
  void run();
  void loop();
  void turn();
  void take_outbox();
  void to_root(ControlRecord record);
  void without_root(const ControlRecord& record);
  void take_own_records();
  void on_record(Rank from, ControlRecord record);
  void on_lost(Rank rank, const std::string& reason);
  void handle(const ControlRecord& record);
  void handle_left(const ControlRecord& record);
  void end_without_root(const Verdict& verdict);
  void handle_gather(const ControlRecord& record);
  void handle_step(const ControlRecord& record);
  void set_abort(const AbortNotice& notice);
  void leave();

  Rendezvous joined_;
  ControlOptions options_;
  ControlCallbacks callbacks_;
  uint64_t process_;  // its generation

  std::mutex mutex_;  // guards what follows up to the next comment
  std::condition_variable changed_;
  Phase phase_ = Phase::running;
  CallLedger ledger_;
  Gather gather_;
  std::deque<ControlRecord> outbox_;
  std::optional<AbortNotice> abort_;
  Verdict raised_;  // the first reason for an abort that this rank has found, which rank 0 may not answer any more

  // The monitor thread's own.
  ControlLink link_;
  std::optional<ControlRoot> root_;        // on rank 0
  std::deque<ControlRecord> own_records_;  // what rank 0 sends to itself
  bool has_root_left_ = false;             // written under the lock too
  bool is_closing_ = false;
  SteadyTime close_until_{};

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace tilewire

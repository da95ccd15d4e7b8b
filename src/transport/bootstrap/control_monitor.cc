// The monitor thread's side; the callers' side is in control.cc.
#include "transport/bootstrap/control_monitor.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/log.h"
#include "base/process_generation.h"
#include "base/signals_blocked.h"

namespace tilewire {
namespace {

constexpr std::chrono::milliseconds kFinishLimit{200};
constexpr size_t kRecordOverheadBytes = size_t{1} << 20;  // texts and lengths beside a gather's contributions

constexpr size_t kMostGatherBytes = size_t{1} << 30;  // a message's length has 32 bits

const ControlOptions& checked(const ControlOptions& options) {
  if (options.heartbeat.count() <= 0 || options.death < 2 * options.heartbeat) {
    throw Error(ErrorKind::invalid_argument, {.what = "the control connection would take live ranks for dead",
                                              .values = fmt::format("heartbeat {} ms, death after {} ms",
                                                                    options.heartbeat.count(), options.death.count()),
                                              .limit = "death must be at least two heartbeats"});
  }
  if (options.max_gather_bytes > kMostGatherBytes) {
    throw Error(ErrorKind::invalid_argument, {.what = "the limit of a gather does not fit a message",
                                              .values = fmt::format("{} bytes", options.max_gather_bytes),
                                              .limit = fmt::format("at most {} bytes", kMostGatherBytes)});
  }
  return options;
}

}  // namespace

ControlConnection::Monitor::Monitor(Rendezvous joined, const ControlOptions& options, ControlCallbacks callbacks)
    : joined_(std::move(joined)),
      options_(checked(options)),
      callbacks_(std::move(callbacks)),
      process_(process_generation()),
      ledger_(joined_.rank, joined_.world_size),
      link_(joined_, {options.heartbeat, options.death, options.max_gather_bytes + kRecordOverheadBytes}) {
  if (is_root()) {
    root_.emplace(joined_.world_size, [this](Rank to, const ControlRecord& record) {
      if (to == Rank(0)) {
        own_records_.push_back(record);
      } else {
        link_.send(to, record);
      }
    });
  }
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    throw Error(ErrorKind::resource,
                {.what = "no thread for the control connection", .values = error.what(), .advice = "raise ulimit -u"});
  }
}

ControlConnection::Monitor::~Monitor() {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::running) phase_ = Phase::stopping;
    changed_.notify_all();
    link_.wake();
  }
  if (thread_.joinable()) thread_.join();
}

void ControlConnection::Monitor::run() {
  set_thread_log_rank(joined_.rank);
  try {
    loop();
  } catch (const std::exception& error) {
    log_error("the control connection failed: {}", error.what());
    link_.finish(steady_now());  // the peers must see an end
    set_abort({joined_.rank, ErrorKind::internal,
               fmt::format("the control connection of rank {} failed: {}", joined_.rank.value, error.what())});
  }
  const std::lock_guard lock(mutex_);
  phase_ = Phase::stopped;
  changed_.notify_all();
}

void ControlConnection::Monitor::loop() {
  while (true) {
    Phase phase = Phase::running;
    {
      const std::lock_guard lock(mutex_);
      phase = phase_;
    }
    if (phase == Phase::stopping) return link_.drop_all();
    if (phase == Phase::closing) return leave();
    turn();
  }
}

void ControlConnection::Monitor::turn() {
  take_outbox();
  take_own_records();
  SteadyTime until = steady_now() + options_.heartbeat;
  if (root_) until = std::min(until, root_->next_tick().value_or(until));
  if (is_closing_) until = std::min(until, close_until_);
  link_.turn(
      until, [this](Rank from, ControlRecord record) { on_record(from, std::move(record)); },
      [this](Rank rank, const std::string& reason) { on_lost(rank, reason); });
  if (root_) root_->on_tick(steady_now());
  take_own_records();
}

void ControlConnection::Monitor::take_outbox() {
  std::deque<ControlRecord> records;
  {
    const std::lock_guard lock(mutex_);
    records.swap(outbox_);
  }
  for (ControlRecord& record : records) to_root(std::move(record));
}

void ControlConnection::Monitor::take_own_records() {
  while (!own_records_.empty()) {
    const ControlRecord record = std::move(own_records_.front());
    own_records_.pop_front();
    handle(record);
  }
}

void ControlConnection::Monitor::to_root(ControlRecord record) {
  if (root_) {
    root_->on_record(joined_.rank, std::move(record), steady_now());
  } else if (link_.is_connected(Rank(0)) && (!has_root_left_ || record.type == ControlType::goodbye)) {
    link_.send(Rank(0), record);
  } else {
    without_root(record);
  }
}

// Rank 0 has closed (its death would have been an abort): this rank decides for itself.
void ControlConnection::Monitor::without_root(const ControlRecord& record) {
  switch (record.type) {
    case ControlType::abort: return set_abort({joined_.rank, record.kind, record.text});
    case ControlType::gather:
      return handle_gather({.type = ControlType::gather_failed,
                            .kind = ErrorKind::peer_lost,
                            .sequence = record.sequence,
                            .text = left_text(Rank(0), joined_.rank, "'" + record.name + "'")});
    case ControlType::mismatch:
      return set_abort(
          {joined_.rank, ErrorKind::mismatch,
           fmt::format("call {} is not the same on ranks {} and {}: rank {}: {}", record.call, joined_.rank.value,
                       record.rank.value, joined_.rank.value, record.call_text.text())});
    default: return;
  }
}

void ControlConnection::Monitor::on_record(Rank from, ControlRecord record) {
  if (root_) {
    root_->on_record(from, std::move(record), steady_now());
  } else {
    handle(record);
  }
}

void ControlConnection::Monitor::on_lost(Rank rank, const std::string& reason) {
  if (root_) return root_->on_lost(rank, reason);
  if (has_root_left_) return;
  set_abort({rank, ErrorKind::peer_lost, fmt::format("rank {} is lost: {}", rank.value, reason)});
}

void ControlConnection::Monitor::handle(const ControlRecord& record) {
  switch (record.type) {
    case ControlType::heartbeat: return;
    case ControlType::gather_result:
    case ControlType::gather_failed: return handle_gather(record);
    case ControlType::step_notice:
    case ControlType::refused: return handle_step(record);
    case ControlType::left: return handle_left(record);
    case ControlType::abort: return set_abort({record.rank, record.kind, record.text});
    case ControlType::query: {
      const std::lock_guard lock(mutex_);
      return post({.type = ControlType::answer,
                   .sequence = record.sequence,
                   .call_text = record.hash != 0 ? ledger_.describe_hash(record.hash) : ledger_.describe(record.call)});
    }
    default:
      throw Error(ErrorKind::internal, {.what = "rank 0 sent a control message that is none for other ranks",
                                        .values = fmt::format("type {}", static_cast<int>(record.type))});
  }
}

void ControlConnection::Monitor::handle_gather(const ControlRecord& record) {
  const std::lock_guard lock(mutex_);
  if (!gather_.is_busy || gather_.sequence != record.sequence) return;
  gather_.is_done = true;
  if (record.type == ControlType::gather_result) {
    gather_.parts = record.parts;
    if (gather_.call != 0) ledger_.end_step(gather_.call);
  } else {
    gather_.fault = CallFault{record.kind, record.text};
  }
  changed_.notify_all();
}

void ControlConnection::Monitor::handle_step(const ControlRecord& record) {
  const std::lock_guard lock(mutex_);
  Verdict verdict;
  if (record.type == ControlType::refused) {
    verdict = ledger_.on_remote_refused(record.rank, record.call, record.text);
    changed_.notify_all();  // see await_refusals()
  } else if (record.call == 0) {
    verdict = ledger_.on_remote_outside(record.rank, {record.name, record.sequence, record.last_tried});
  } else {
    verdict = ledger_.on_remote_step(record.rank, {record.call, record.name, record.hash}, record.call_text);
  }
  if (verdict) raise(*verdict);
}

void ControlConnection::Monitor::handle_left(const ControlRecord& record) {
  Verdict verdict;
  {
    const std::lock_guard lock(mutex_);
    if (record.rank == Rank(0)) has_root_left_ = true;
    verdict = ledger_.on_remote_left(record.rank, record.last_ended);
    if (verdict && !has_root_left_) raise(*verdict);
  }
  if (callbacks_.on_left) callbacks_.on_left(record.rank, record.last_ended);
  if (has_root_left_) end_without_root(verdict);
}

// With rank 0 gone nobody orders the aborts: a reason that this rank has found before comes first, and what others do
// because of it must not be taken for the cause.
void ControlConnection::Monitor::end_without_root(const Verdict& verdict) {
  Verdict cause;
  {
    const std::lock_guard lock(mutex_);
    cause = raised_ ? raised_ : verdict;
  }
  if (cause) set_abort({joined_.rank, cause->kind, cause->text});
  const std::lock_guard lock(mutex_);
  if (abort_ || !gather_.is_busy || gather_.is_done) return;
  gather_.is_done = true;
  gather_.fault = CallFault{ErrorKind::peer_lost, left_text(Rank(0), joined_.rank, "a gather")};
  changed_.notify_all();
}

void ControlConnection::Monitor::set_abort(const AbortNotice& notice) {
  {
    const std::lock_guard lock(mutex_);
    if (abort_) return;
    abort_ = notice;
    changed_.notify_all();
  }
  if (callbacks_.on_abort) callbacks_.on_abort(notice);
}

void ControlConnection::Monitor::leave() {
  take_outbox();
  take_own_records();
  uint64_t last_ended = 0;
  {
    const std::lock_guard lock(mutex_);
    last_ended = ledger_.last_ended();
  }
  to_root({.type = ControlType::goodbye, .last_ended = last_ended});
  is_closing_ = true;
  close_until_ = steady_now() + options_.close_linger;
  while (root_ && !root_->are_others_gone() && steady_now() < close_until_) turn();
  link_.finish(steady_now() + kFinishLimit);
}

}  // namespace tilewire

// The callers' side of the control connection; the monitor thread's side is in control_monitor.cc.
#include "transport/bootstrap/control.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/process_generation.h"
#include "transport/bootstrap/control_monitor.h"

namespace tilewire {
namespace {

constexpr size_t kMaxTextBytes = size_t{16} << 10;
constexpr std::chrono::milliseconds kAbortRoundTrip{1000};  // for rank 0 to say which abort was the first

std::string clipped(std::string text) {
  if (text.size() > kMaxTextBytes) text.resize(kMaxTextBytes);
  return text;
}

std::string seconds_text(std::chrono::nanoseconds time) {
  return fmt::format("{:.3g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

bool ControlConnection::Monitor::is_of_this_process() const { return process_ == process_generation(); }

void ControlConnection::Monitor::throw_abort() const {
  throw Error(abort_->kind, {.what = abort_->text, .where = fmt::format("rank {}", joined_.rank.value)});
}

void ControlConnection::Monitor::throw_if_forked() const {
  if (is_of_this_process()) return;
  throw Error(ErrorKind::closed, {.what = "the communicator belongs to the process that this one was forked from",
                                  .where = fmt::format("rank {}", joined_.rank.value),
                                  .advice = "create a communicator in the child, or use spawn instead of fork"});
}

void ControlConnection::Monitor::throw_if_dead(const Lock&) const {
  if (abort_) throw_abort();
  if (phase_ == Phase::running) return;
  throw Error(ErrorKind::closed,
              {.what = "the communicator is closed", .where = fmt::format("rank {}", joined_.rank.value)});
}

void ControlConnection::Monitor::post(ControlRecord record) {
  record.text = clipped(std::move(record.text));
  record.call_text.clip(kMaxTextBytes);
  outbox_.push_back(std::move(record));
  link_.wake();
}

void ControlConnection::Monitor::raise(const CallFault& fault) {
  if (!raised_) raised_ = fault;
  post({.type = ControlType::abort, .rank = joined_.rank, .kind = fault.kind, .text = fault.text});
}

// A rank that has ended the communicator makes no call any more, however long the news is on its way: others may be in the
// call that it left.
void ControlConnection::Monitor::throw_if_ended(Lock& lock) {
  throw_if_dead(lock);
  if (raised_) await_and_throw(lock, *raised_);
}

// All ranks are to get one text, so what is thrown is what rank 0 makes of it.
void ControlConnection::Monitor::raise_and_throw(Lock& lock, const CallFault& fault) {
  raise(fault);
  await_and_throw(lock, fault);
}

void ControlConnection::Monitor::await_and_throw(Lock& lock, const CallFault& fault) {
  changed_.wait_until(lock, deadline_in(kAbortRoundTrip), [&] { return abort_ || phase_ == Phase::stopped; });
  if (abort_) throw_abort();
  throw Error(fault.kind, {.what = fault.text, .where = fmt::format("rank {}", joined_.rank.value)});
}

void ControlConnection::Monitor::check_gather_size(const GatherTag& tag, size_t own_bytes) const {
  const size_t limit_bytes = options_.max_gather_bytes / static_cast<size_t>(joined_.world_size);
  if (own_bytes <= limit_bytes) return;
  throw Error(ErrorKind::invalid_argument,
              {.what = fmt::format("rank {} brings too much to the gather '{}'", joined_.rank.value, tag.kind),
               .values = fmt::format("{} bytes", own_bytes),
               .limit = fmt::format("at most {} bytes a rank", limit_bytes)});
}

void ControlConnection::Monitor::start_gather(Lock& lock, const GatherTag& tag, Bytes mine) {
  ControlRecord record{.type = ControlType::gather, .call = tag.call, .hash = tag.hash, .name = tag.kind};
  const uint64_t sequence = gather_.sequence + 1;
  gather_ = {.is_busy = true, .is_done = false, .sequence = sequence, .call = tag.call, .parts = {}, .fault = {}};
  Verdict verdict;
  if (tag.call == 0) {
    ledger_.join_outside(tag.kind);
  } else {
    verdict = ledger_.agree({tag.call, tag.kind, tag.hash});
    record.call_text = ledger_.describe(tag.call);
  }
  if (verdict) {
    gather_.is_busy = false;
    raise_and_throw(lock, *verdict);
  }
  record.sequence = sequence;
  record.last_tried = ledger_.last_tried();
  record.parts.push_back(std::move(mine));
  post(std::move(record));
}

std::vector<Bytes> ControlConnection::Monitor::allgather(const GatherTag& tag, Bytes mine, SteadyTime deadline) {
  throw_if_forked();
  const SteadyTime start = steady_now();
  Lock lock(mutex_);
  check_gather_size(tag, mine.size());
  const auto is_over = [&] { return abort_.has_value() || phase_ != Phase::running; };
  if (!changed_.wait_until(lock, deadline, [&] { return is_over() || !gather_.is_busy; })) {
    throw Error(ErrorKind::deadline, {.what = "another thread's gather was not over in time",
                                      .where = fmt::format("rank {}, gather '{}'", joined_.rank.value, tag.kind)});
  }
  throw_if_dead(lock);
  start_gather(lock, tag, std::move(mine));
  const bool is_in_time = changed_.wait_until(lock, deadline, [&] { return is_over() || gather_.is_done; });
  if (!is_in_time) report_expired(lock, tag, steady_now() - start);
  const Gather result = std::move(gather_);
  gather_ = {.is_busy = false, .is_done = false, .sequence = result.sequence, .call = 0, .parts = {}, .fault = {}};
  changed_.notify_all();
  if (result.is_done && !result.fault) return result.parts;
  throw_if_dead(lock);
  if (!result.is_done) raise_expired(lock, tag, steady_now() - start);
  if (tag.call != 0) raise_and_throw(lock, *result.fault);  // a call of some ranks is the end for all
  throw Error(result.fault->kind, {.what = result.fault->text, .where = fmt::format("rank {}", joined_.rank.value)});
}

// Rank 0 says who has not come, or the last of them comes while the report is under way.
void ControlConnection::Monitor::report_expired(Lock& lock, const GatherTag& tag, std::chrono::nanoseconds waited) {
  post({.type = ControlType::gather_expired,
        .call = tag.call,
        .name = tag.kind,
        .text = seconds_text(waited),
        .call_text = {.advice = fmt::format("where they are only late, raise {}", tag.limit_variable)}});
  changed_.wait_until(lock, deadline_in(kAbortRoundTrip),
                      [&] { return abort_ || phase_ != Phase::running || gather_.is_done; });
}

void ControlConnection::Monitor::raise_expired(Lock& lock, const GatherTag& tag, std::chrono::nanoseconds waited) {
  const char* why = is_root() ? "its control thread does not get to it, as on a machine with too much to do"
                              : "rank 0 gives no answer";
  raise_and_throw(lock, {ErrorKind::deadline, fmt::format("the gather '{}' was not over within {} on rank {}, and {}",
                                                          tag.kind, seconds_text(waited), joined_.rank.value, why)});
}

void ControlConnection::Monitor::begin_call(uint64_t call, CallTextRef text) {
  throw_if_forked();
  Lock lock(mutex_);
  throw_if_ended(lock);
  if (const Verdict verdict = ledger_.begin_call(call, std::move(text))) raise_and_throw(lock, *verdict);
}

void ControlConnection::Monitor::describe_call(uint64_t call, CallTextRef text) {
  const std::lock_guard lock(mutex_);
  ledger_.describe_call(call, std::move(text));
}

void ControlConnection::Monitor::enter_call(uint64_t call) {
  throw_if_forked();
  Lock lock(mutex_);
  throw_if_ended(lock);
  if (const Verdict verdict = ledger_.enter_call(call)) raise_and_throw(lock, *verdict);
}

void ControlConnection::Monitor::end_call(uint64_t call) {
  const std::lock_guard lock(mutex_);
  ledger_.end_call(call);
}

void ControlConnection::Monitor::refuse_call(uint64_t call, const std::string& text) {
  const std::lock_guard lock(mutex_);
  ledger_.refuse_call(call, clipped(text));
  post({.type = ControlType::refused, .rank = joined_.rank, .call = call, .text = text});
}

void ControlConnection::Monitor::await_refusals(SteadyTime deadline) {
  throw_if_forked();
  const SteadyTime start = steady_now();
  Lock lock(mutex_);
  std::optional<CallLedger::LoneRefusal> lone;
  changed_.wait_until(lock, deadline, [&] {
    lone = ledger_.lone_refusal();
    return !lone || abort_ || phase_ != Phase::running;
  });
  throw_if_dead(lock);
  if (!lone) return;
  raise_and_throw(
      lock, {ErrorKind::deadline,
             fmt::format("rank {} refused call {} and has waited {} for rank {} to come to it; {}", joined_.rank.value,
                         lone->call, seconds_text(steady_now() - start), fmt::join(lone->lacking, ", "), kLateAdvice)});
}

void ControlConnection::Monitor::report_mismatch(uint64_t call, Rank peer, const CallText& own, uint64_t hash_of_peer) {
  const std::lock_guard lock(mutex_);
  post({.type = ControlType::mismatch, .rank = peer, .call = call, .hash = hash_of_peer, .call_text = own});
}

void ControlConnection::Monitor::send_abort(ErrorKind kind, const std::string& text) {
  if (!is_of_this_process()) return;
  const std::lock_guard lock(mutex_);
  raise({kind, text});
}

std::optional<AbortNotice> ControlConnection::Monitor::aborted() {
  const std::lock_guard lock(mutex_);
  return abort_;
}

void ControlConnection::Monitor::throw_if_aborted() {
  throw_if_forked();
  const Lock lock(mutex_);
  throw_if_dead(lock);
}

bool ControlConnection::Monitor::has_left(Rank rank) {
  const std::lock_guard lock(mutex_);
  return has_root_left_ || ledger_.has_left(rank);
}

void ControlConnection::Monitor::close() {
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::running) phase_ = Phase::closing;
    changed_.notify_all();
    link_.wake();
  }
  const std::lock_guard join(join_mutex_);
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  link_.stop_waking();
}

ControlConnection::ControlConnection(Rendezvous joined, const ControlOptions& options, ControlCallbacks callbacks)
    : monitor_(std::make_unique<Monitor>(std::move(joined), options, std::move(callbacks))) {}

ControlConnection::~ControlConnection() {
  // A forked child has neither the thread nor a right to the sockets; what it has a copy of is left alone.
  if (!monitor_->is_of_this_process()) static_cast<void>(monitor_.release());
}

Rank ControlConnection::rank() const { return monitor_->joined().rank; }
int32_t ControlConnection::world_size() const { return monitor_->joined().world_size; }
const JobKey& ControlConnection::job() const { return monitor_->joined().job; }
const std::vector<HostIdentity>& ControlConnection::hosts() const { return monitor_->joined().hosts; }

std::vector<Bytes> ControlConnection::allgather(const GatherTag& tag, Bytes mine, SteadyTime deadline) {
  return monitor_->allgather(tag, std::move(mine), deadline);
}

void ControlConnection::barrier(const std::string& name, SteadyTime deadline, const char* limit_variable) {
  monitor_->allgather({.kind = name, .limit_variable = limit_variable}, {}, deadline);
}

void ControlConnection::begin_call(uint64_t call, CallTextRef text) { monitor_->begin_call(call, std::move(text)); }
void ControlConnection::describe_call(uint64_t call, CallTextRef text) {
  monitor_->describe_call(call, std::move(text));
}
void ControlConnection::enter_call(uint64_t call) { monitor_->enter_call(call); }
void ControlConnection::end_call(uint64_t call) { monitor_->end_call(call); }
void ControlConnection::refuse_call(uint64_t call, const std::string& text) { monitor_->refuse_call(call, text); }
void ControlConnection::await_refusals(SteadyTime deadline) { monitor_->await_refusals(deadline); }

void ControlConnection::report_mismatch(uint64_t call, Rank peer, const CallText& own, uint64_t hash_of_peer) {
  monitor_->report_mismatch(call, peer, own, hash_of_peer);
}

void ControlConnection::send_abort(ErrorKind kind, const std::string& text) { monitor_->send_abort(kind, text); }
std::optional<AbortNotice> ControlConnection::aborted() const { return monitor_->aborted(); }
void ControlConnection::throw_if_aborted() const { monitor_->throw_if_aborted(); }
bool ControlConnection::has_left(Rank rank) const { return monitor_->has_left(rank); }
void ControlConnection::throw_if_forked() const { monitor_->throw_if_forked(); }

void ControlConnection::close() {
  if (monitor_->is_of_this_process()) monitor_->close();
}

}  // namespace tilewire

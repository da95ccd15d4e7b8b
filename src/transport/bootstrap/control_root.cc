#include "transport/bootstrap/control_root.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "transport/bootstrap/agreement.h"
#include "transport/bootstrap/call_ledger.h"

namespace tilewire {
namespace {

// Long enough that ranks in step never cause a notice, short enough for people.
constexpr std::chrono::milliseconds kNoticeAfter{50};
constexpr std::chrono::milliseconds kAnswerLimit{1000};

}  // namespace

ControlRoot::ControlRoot(int32_t world_size, Send send)
    : send_(std::move(send)), peers_(static_cast<size_t>(world_size)) {}

void ControlRoot::on_record(Rank from, ControlRecord record, SteadyTime now) {
  switch (record.type) {
    case ControlType::gather: return on_gather(from, std::move(record), now);
    case ControlType::goodbye: return on_goodbye(from, record.last_ended);
    case ControlType::gather_expired: return on_expired(from, record);
    case ControlType::mismatch: return on_mismatch(from, record, now);
    case ControlType::answer: return on_answer(from, record);
    case ControlType::abort: return abort(from, record.kind, record.text);
    case ControlType::refused: return on_refused(from, std::move(record));
    case ControlType::heartbeat: return;
    default:
      return abort(from, ErrorKind::internal,
                   fmt::format("rank {} sent rank 0 a control message of type {}, which is none for rank 0", from.value,
                               static_cast<int>(record.type)));
  }
}

std::string ControlRoot::gather_text(const ControlRecord& gather) {
  std::string text = gather.call == 0 ? fmt::format("'{}' outside calls", gather.name)
                                      : fmt::format("'{}' of call {}", gather.name, gather.call);
  if (gather.hash != 0) text += fmt::format(" (hash {:016x})", gather.hash);
  const std::string said = gather.call_text.text();
  if (!said.empty()) text += fmt::format(": {}", said);
  return text;
}

// Two ranks in the same step of a call that differ in what they agree on, or in different steps.
std::string ControlRoot::difference_text(const ControlRecord& a, const ControlRecord& b) {
  if (a.call != 0 && a.call == b.call && a.name == b.name) {
    return mismatch_text(a.call, {a.rank, a.call_text}, {b.rank, b.call_text});
  }
  const bool is_a_first = a.rank < b.rank;
  const ControlRecord &first = is_a_first ? a : b, &second = is_a_first ? b : a;
  const std::string& own_advice = first.call_text.advice.empty() ? second.call_text.advice : first.call_text.advice;
  // Ranks in different calls, or of which one is in none, have done different things whatever they brought.
  const std::string advice = a.call == b.call || own_advice.empty() ? own_advice : kSameCallsAdvice;
  return fmt::format("ranks are in different steps: rank {} is in {} | rank {} is in {}{}{}", first.rank.value,
                     gather_text(first), second.rank.value, gather_text(second), advice.empty() ? "" : "; ", advice);
}

void ControlRoot::on_gather(Rank from, ControlRecord record, SteadyTime now) {
  record.rank = from;
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Rank other(static_cast<int32_t>(i));
    const auto& theirs = peers_[i].gather;
    if (!theirs || other == from) continue;
    if (theirs->name == record.name && theirs->call == record.call && theirs->hash == record.hash) continue;
    return abort(from, ErrorKind::mismatch, difference_text(*theirs, record));
  }
  if (!first_in_gather_) {
    first_in_gather_ = from;
    notice_at_ = now + kNoticeAfter;
    is_notice_sent_ = false;
    silent_until_ = now + kSilence;
    is_lateness_told_ = false;
  }
  peer(from).gather = std::move(record);
  if (ranks_without_gather().empty()) return finish_gather();
  fail_gathers_of_left();
}

void ControlRoot::on_refused(Rank from, ControlRecord record) {
  record.rank = from;
  broadcast(record, from);
  peer(from).refusal = std::move(record);
}

// A rank that waits in a call for one that refused it: "rank 1 refused call 3 that rank 2 is in: ...".
std::optional<std::string> ControlRoot::refusal_text(Rank peer_rank, Rank waiting, uint64_t call) const {
  const auto& refusal = peer(peer_rank).refusal;
  if (!refusal || call == 0 || refusal->call != call) return std::nullopt;
  return refused_text(call, peer_rank, refusal->text, waiting);
}

void ControlRoot::finish_gather() {
  ControlRecord result{.type = ControlType::gather_result};
  for (Peer& p : peers_) result.parts.push_back(p.gather->parts.empty() ? Bytes() : std::move(p.gather->parts.front()));
  for (size_t i = 0; i < peers_.size(); ++i) {
    result.sequence = peers_[i].gather->sequence;
    peers_[i].gather.reset();
    send_(Rank(static_cast<int32_t>(i)), result);
  }
  first_in_gather_.reset();
}

void ControlRoot::fail_gathers_of_left() {
  std::vector<Rank> gone;
  for (const Rank missing : ranks_without_gather()) {
    if (peer(missing).is_left) gone.push_back(missing);
  }
  if (gone.empty()) return;
  const std::string who =
      fmt::format("{} closed {}", rank_list(gone), gone.size() == 1 ? "its communicator" : "theirs");
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].gather) continue;
    const Rank waiting(static_cast<int32_t>(i));
    const ControlRecord& gather = *peers_[i].gather;
    // Who refuses a call may well leave then; that it refused is the cause.
    std::optional<std::string> refusal;
    for (const Rank rank : gone) refusal = refusal ? refusal : refusal_text(rank, waiting, gather.call);
    const std::string left =
        fmt::format("{}, and rank {} waits in {}; {}", who, waiting.value, gather_text(gather), kClosedAdvice);
    send_(waiting, {.type = ControlType::gather_failed,
                    .rank = gone.front(),
                    .kind = refusal ? ErrorKind::refused : ErrorKind::peer_lost,
                    .sequence = gather.sequence,
                    .text = refusal.value_or(left)});
    peers_[i].gather.reset();
  }
  first_in_gather_.reset();
}

void ControlRoot::on_goodbye(Rank from, uint64_t last_ended) {
  peer(from).is_left = true;
  broadcast({.type = ControlType::left, .rank = from, .last_ended = last_ended}, from);
  fail_gathers_of_left();
}

void ControlRoot::on_expired(Rank from, const ControlRecord& record) {
  if (!peer(from).gather) return;  // it completed while the notice was under way
  const std::vector<Rank> missing = ranks_without_gather();
  abort(from, ErrorKind::deadline,
        fmt::format("{} did not come to {} within {}, where rank {} waited; {}", rank_list(missing),
                    gather_text(*peer(from).gather), record.text, from.value, record.call_text.advice));
}

void ControlRoot::on_mismatch(Rank from, const ControlRecord& record, SteadyTime now) {
  if (record.rank.value < 0 || static_cast<size_t>(record.rank.value) >= peers_.size()) {
    return abort(from, ErrorKind::internal,
                 fmt::format("rank {} reports a mismatch with rank {}, which is none", from.value, record.rank.value));
  }
  if (is_aborted_) return;
  Question question{record.call, record.hash,      next_question_++,  from,
                    record.rank, record.call_text, now + kAnswerLimit};
  const Peer& other = peer(record.rank);
  if (other.is_left || other.is_lost) return conclude(question, plain_text("has left"));
  questions_.push_back(question);
  send_(record.rank, {.type = ControlType::query,
                      .rank = from,
                      .call = record.call,
                      .hash = record.hash,
                      .sequence = question.sequence});
}

void ControlRoot::on_answer(Rank from, const ControlRecord& record) {
  const auto at = std::find_if(questions_.begin(), questions_.end(), [&](const Question& question) {
    return question.sequence == record.sequence && question.peer == from;
  });
  if (at == questions_.end()) return;
  const Question question = *at;
  questions_.erase(at);
  conclude(question, record.call_text);
}

void ControlRoot::conclude(const Question& question, const CallText& theirs) {
  // Whoever has a hash of the peer's counts its calls in another way than those who refuse them.
  const uint64_t call = question.hash_of_peer == 0 ? question.call : 0;
  if (const auto refusal = refusal_text(question.peer, question.reporter, call)) {
    return abort(question.peer, ErrorKind::refused, *refusal);
  }
  abort(question.reporter, ErrorKind::mismatch,
        mismatch_text(question.call, {question.reporter, question.own}, {question.peer, theirs}));
}

void ControlRoot::on_lost(Rank rank, const std::string& reason) {
  if (peer(rank).is_left || peer(rank).is_lost) return;
  peer(rank).is_lost = true;
  abort(rank, ErrorKind::peer_lost, fmt::format("rank {} is lost: {}", rank.value, reason));
}

// Once in a gather, in the log: its error may be minutes away, and who waits sees nothing until then.
void ControlRoot::tell_who_is_late(SteadyTime now) {
  if (!first_in_gather_ || is_lateness_told_ || now < silent_until_) return;
  is_lateness_told_ = true;
  log_warn("{} did not come within {} s to {}, where rank {} waits", rank_list(ranks_without_gather()),
           std::chrono::duration<double>(kSilence).count(), gather_text(*peer(*first_in_gather_).gather),
           first_in_gather_->value);
}

void ControlRoot::on_tick(SteadyTime now) {
  tell_who_is_late(now);
  if (first_in_gather_ && !is_notice_sent_ && now >= notice_at_) {
    is_notice_sent_ = true;
    ControlRecord notice = *peer(*first_in_gather_).gather;
    notice.type = ControlType::step_notice;
    notice.parts.clear();
    for (const Rank rank : ranks_without_gather()) send_(rank, notice);
  }
  for (size_t i = 0; i < questions_.size();) {
    if (now < questions_[i].until) {
      ++i;
      continue;
    }
    const Question question = questions_[i];
    questions_.erase(questions_.begin() + static_cast<std::ptrdiff_t>(i));
    conclude(question, plain_text("gives no answer"));
  }
}

std::optional<SteadyTime> ControlRoot::next_tick() const {
  std::optional<SteadyTime> next;
  if (first_in_gather_ && !is_notice_sent_) next = notice_at_;
  if (first_in_gather_ && !is_lateness_told_) next = std::min(next.value_or(silent_until_), silent_until_);
  for (const Question& question : questions_) next = std::min(next.value_or(question.until), question.until);
  return next;
}

void ControlRoot::abort(Rank rank, ErrorKind kind, const std::string& text) {
  if (is_aborted_) return;
  is_aborted_ = true;
  broadcast({.type = ControlType::abort, .rank = rank, .kind = kind, .text = text}, std::nullopt);
}

void ControlRoot::broadcast(const ControlRecord& record, std::optional<Rank> except) {
  for (size_t i = 0; i < peers_.size(); ++i) {
    const Rank to(static_cast<int32_t>(i));
    if (except != to) send_(to, record);
  }
}

std::vector<Rank> ControlRoot::ranks_without_gather() const {
  std::vector<Rank> out;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!peers_[i].gather) out.emplace_back(static_cast<int32_t>(i));
  }
  return out;
}

bool ControlRoot::are_others_gone() const {
  return std::all_of(peers_.begin() + 1, peers_.end(), [](const Peer& p) { return p.is_left || p.is_lost; });
}

}  // namespace tilewire

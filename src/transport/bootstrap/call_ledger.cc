#include "transport/bootstrap/call_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tilewire {
namespace {

std::string step_text(const CallStep& step) {
  return fmt::format(": agrees on '{}' (hash {:016x})", step.kind, step.hash);
}

// What to do about two texts of one call.
std::string advice_of(const CallText& one, const CallText& other) {
  const std::string& general = one.advice.empty() ? other.advice : one.advice;
  if (one.op != other.op) return one.op.empty() || other.op.empty() ? general : kSameCallsAdvice;
  if (one.parts.size() != other.parts.size() || one.parts.empty()) return general;
  const auto [mine, theirs] = std::mismatch(one.parts.begin(), one.parts.end(), other.parts.begin(),
                                            [](const CallPart& a, const CallPart& b) { return a.text == b.text; });
  if (mine == one.parts.begin() || mine == one.parts.end()) return general;
  const std::string& own = mine->advice.empty() ? theirs->advice : mine->advice;
  return fmt::format("they differ in '{}' and '{}', which must be the same on all ranks{}{}", mine->text, theirs->text,
                     own.empty() ? "" : "; ", own);
}

}  // namespace

std::string mismatch_text(uint64_t call, const RankText& one, const RankText& other) {
  const bool is_one_first = one.rank < other.rank;
  const RankText &first = is_one_first ? one : other, &second = is_one_first ? other : one;
  const std::string advice = advice_of(first.text, second.text);
  return fmt::format("call {} is not the same on all ranks: rank {}: {}{} | rank {}: {}{}{}{}", call, first.rank.value,
                     first.text.text(), first.note, second.rank.value, second.text.text(), second.note,
                     advice.empty() ? "" : "; ", advice);
}

std::string left_text(Rank left, Rank waiting, const std::string& in) {
  return fmt::format("rank {} closed its communicator, and rank {} waits for it in {}; {}", left.value, waiting.value,
                     in, kClosedAdvice);
}

std::string refused_text(uint64_t call, Rank refusing, const std::string& text, Rank waiting) {
  return fmt::format("rank {} refused call {} that rank {} is in: {}", refusing.value, call, waiting.value, text);
}

Verdict CallLedger::begin_call(uint64_t call, CallTextRef text) {
  last_tried_ = std::max(last_tried_, call);
  Call& own = calls_[call];
  own = {.state = State::begun, .text = std::move(text), .steps = {}, .is_in_step = false};
  forget_old();
  if (auto fault = check_refusals(call)) return fault;
  for (const auto& [peer, last_ended] : left_) {
    if (last_ended < call) return left_fault(Rank(peer), call);
  }
  return std::nullopt;
}

void CallLedger::describe_call(uint64_t call, CallTextRef text) {
  const auto own = calls_.find(call);
  if (own != calls_.end()) own->second.text = std::move(text);
}

Verdict CallLedger::agree(const CallStep& step) {
  Call& own = calls_[step.call];
  last_tried_ = std::max(last_tried_, step.call);
  own.steps.push_back(step);
  own.is_in_step = true;
  ++joined_;
  if (auto fault = check_refusals(step.call)) return fault;
  return check_steps_of(step.call);
}

void CallLedger::end_step(uint64_t call) {
  const auto own = calls_.find(call);
  if (own != calls_.end()) own->second.is_in_step = false;
}

Verdict CallLedger::enter_call(uint64_t call) {
  calls_[call].state = State::entered;
  last_tried_ = std::max(last_tried_, call);
  if (auto fault = check_refusals(call)) return fault;
  for (const auto& [peer, theirs] : remote_outside_) {
    if (auto fault = check_outside(Rank(peer), theirs)) return fault;
  }
  return check_steps_of(call);
}

OutsideStep CallLedger::join_outside(std::string kind) { return {std::move(kind), ++joined_, last_tried_}; }

void CallLedger::end_call(uint64_t call) {
  const auto own = calls_.find(call);
  if (own != calls_.end()) own->second.state = State::ended;
  last_ended_ = std::max(last_ended_, call);
}

void CallLedger::refuse_call(uint64_t call, std::string text) {
  last_tried_ = std::max(last_tried_, call);
  last_ended_ = std::max(last_ended_, call);
  Call& own = calls_[call];
  own.state = State::refused;
  if (own.text == nullptr) own.text = std::make_shared<CallText>(plain_text(fmt::format("refused: {}", text)));
  Refusal& refusal = refusals_[call];
  refusal.ranks.insert(rank_.value);
  if (refusal.text.empty()) refusal.text = std::move(text);
  if (refusal.ranks.size() == static_cast<size_t>(world_size_)) refusals_.erase(call);
  forget_old();
}

Verdict CallLedger::on_remote_refused(Rank rank, uint64_t call, std::string text) {
  const auto known = refusals_.find(call);
  const bool is_refused_here = known != refusals_.end() && known->second.ranks.count(rank_.value) != 0;
  Refusal& refusal = refusals_[call];
  if (refusal.ranks.empty() || (is_refused_here && refusal.ranks.size() == 1)) refusal.first = rank;
  if (refusal.text.empty()) refusal.text = std::move(text);
  refusal.ranks.insert(rank.value);
  if (refusal.ranks.size() == static_cast<size_t>(world_size_)) {
    refusals_.erase(call);
    return std::nullopt;
  }
  if (is_refused_here || call > last_tried_) return std::nullopt;
  // In a step it waits for the peer, who will not come: all that the peer joined were over before it refused.
  const auto own = calls_.find(call);
  if (own != calls_.end() && own->second.state == State::begun && !own->second.is_in_step) return std::nullopt;
  return refused_fault(call, refusal);
}

std::optional<CallLedger::LoneRefusal> CallLedger::lone_refusal() const {
  const auto own = std::find_if(refusals_.begin(), refusals_.end(),
                                [this](const auto& entry) { return entry.second.ranks.contains(rank_.value); });
  if (own == refusals_.end()) return std::nullopt;
  LoneRefusal found{.call = own->first};
  for (int32_t rank = 0; rank < world_size_; ++rank) {
    if (!own->second.ranks.contains(rank)) found.lacking.push_back(rank);
  }
  return found;
}

Verdict CallLedger::check_refusals(uint64_t call) const {
  const auto refusal = refusals_.find(call);
  if (refusal == refusals_.end()) return std::nullopt;
  return refused_fault(call, refusal->second);
}

Verdict CallLedger::on_remote_step(Rank rank, const CallStep& step, CallText text) {
  RemoteStep& theirs = remote_steps_[rank.value];
  theirs = {step, std::move(text)};
  return check_step(rank, theirs);
}

Verdict CallLedger::on_remote_outside(Rank rank, const OutsideStep& step) {
  remote_outside_[rank.value] = step;
  return check_outside(rank, step);
}

Verdict CallLedger::on_remote_left(Rank rank, uint64_t last_ended) {
  left_[rank.value] = last_ended;
  for (const auto& [call, own] : calls_) {
    if (call > last_ended && (own.state == State::begun || own.state == State::entered)) return left_fault(rank, call);
  }
  return std::nullopt;
}

Verdict CallLedger::check_steps_of(uint64_t call) const {
  for (const auto& [peer, theirs] : remote_steps_) {
    if (theirs.step.call != call) continue;
    if (auto fault = check_step(Rank(peer), theirs)) return fault;
  }
  return std::nullopt;
}

// A peer in a gather outside calls that this rank has not joined, while this rank waits in a call that the peer has not
// begun: each would wait for the other.
Verdict CallLedger::check_outside(Rank peer, const OutsideStep& theirs) const {
  if (theirs.sequence <= joined_ || theirs.last_tried >= last_tried_) return std::nullopt;
  const auto at = calls_.find(last_tried_);
  if (at == calls_.end() || at->second.state != State::entered) return std::nullopt;
  return CallFault{
      ErrorKind::mismatch,
      fmt::format("ranks are in different steps: rank {} is in '{}' after call {}, rank {} is in call {}: {}; {}",
                  peer.value, theirs.kind, theirs.last_tried, rank_.value, last_tried_, describe(last_tried_).text(),
                  kSameCallsAdvice)};
}

// A peer in a step of call n is right when this rank is in the same step or can still come to it: it has not begun n,
// or has begun it and neither entered it nor joined other steps beyond the peer's.
Verdict CallLedger::check_step(Rank peer, const RemoteStep& theirs) const {
  const uint64_t call = theirs.step.call;
  if (call > last_tried_) return std::nullopt;
  const auto at = calls_.find(call);
  if (at == calls_.end()) {
    const std::string mine = fmt::format("is at call {} and has not agreed on call {}", last_tried_, call);
    return step_fault(peer, theirs, {rank_, plain_text(mine)});
  }
  const Call& own = at->second;
  if (own.state == State::refused) return std::nullopt;  // the peer hears of the refusal
  if (std::find(own.steps.begin(), own.steps.end(), theirs.step) != own.steps.end()) return std::nullopt;
  const auto same_kind = std::find_if(own.steps.begin(), own.steps.end(),
                                      [&](const CallStep& step) { return step.kind == theirs.step.kind; });
  if (same_kind != own.steps.end()) {
    return step_fault(peer, theirs, {rank_, describe(call), step_text(*same_kind)});
  }
  if (own.state == State::begun) return std::nullopt;
  return step_fault(peer, theirs, {rank_, describe(call), ": is past all agreement"});
}

CallFault CallLedger::refused_fault(uint64_t call, const Refusal& refusal) const {
  return {ErrorKind::refused, refused_text(call, refusal.first, refusal.text, rank_)};
}

CallFault CallLedger::step_fault(Rank peer, const RemoteStep& theirs, const RankText& mine) const {
  const RankText other{peer, theirs.text, step_text(theirs.step)};
  return {ErrorKind::mismatch, mismatch_text(theirs.step.call, mine, other)};
}

CallFault CallLedger::left_fault(Rank peer, uint64_t call) const {
  return {ErrorKind::peer_lost, left_text(peer, rank_, fmt::format("call {}", call))};
}

CallText CallLedger::describe_hash(uint64_t hash) const {
  for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
    if (call->second.text != nullptr && call->second.text->hash() == hash) return *call->second.text;
  }
  return unknown_call_text(hash);
}

CallText CallLedger::describe(uint64_t call) const {
  const auto at = calls_.find(call);
  if (at != calls_.end()) return at->second.text == nullptr ? CallText{} : *at->second.text;
  if (call > last_tried_) {
    return plain_text(fmt::format("has not come to call {} (last tried: {})", call, last_tried_));
  }
  return plain_text(fmt::format("is at call {}, call {} is long past", last_tried_, call));
}

void CallLedger::forget_old() {
  while (calls_.size() > kKeptCalls) calls_.erase(calls_.begin());
}

}  // namespace tilewire

#include "executor/kernel_faults.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>

#include "schedule/word_text.h"
#include "transport/bootstrap/call_ledger.h"

namespace tilewire {
namespace {

constexpr std::chrono::milliseconds kLook{3};
constexpr const char* const kNoFamilies[kWordFamilies] = {};

std::string name_of(const FaultRecord& record, const FlagLayout& flags, const KernelNames& names) {
  if (record.word >= kRingTailWord) return fmt::format("room in command ring {}", record.word - kRingTailWord);
  if (record.word >= kFinishedWord) return fmt::format("CTA {} to finish", record.word - kFinishedWord);
  const char* const* families = names.family_names != nullptr ? names.family_names : kNoFamilies;
  return word_text(flags, static_cast<uint32_t>(record.word), families);
}

std::string role_of(const FaultRecord& record, const KernelNames& names) {
  const auto role = static_cast<size_t>(record.role);
  return record.role >= 0 && role < names.roles.size() ? names.roles[role] : fmt::format("number {}", record.role);
}

}  // namespace

bool has_fault(const FaultRecord& record) {
  return std::atomic_ref(const_cast<uint64_t&>(record.state)).load(std::memory_order_acquire) == FaultRecord::kComplete;
}

int32_t KernelFaults::add_op(const KernelNames& names) {
  const std::lock_guard lock(mutex_);
  for (size_t op = 0; op < ops_.size(); ++op) {
    if (ops_[op].op == names.op) return static_cast<int32_t>(op);
  }
  ops_.push_back(names);
  return static_cast<int32_t>(ops_.size()) - 1;
}

const char* KernelFaults::role_name(int32_t op, int32_t role) const {
  const std::lock_guard lock(mutex_);
  if (op < 0 || static_cast<size_t>(op) >= ops_.size()) return "kernel";
  const auto& roles = ops_[static_cast<size_t>(op)].roles;
  return role >= 0 && static_cast<size_t>(role) < roles.size() ? roles[static_cast<size_t>(role)] : "kernel";
}

Error KernelFaults::error(const CallRemark& remark) const {
  const std::lock_guard lock(mutex_);
  const auto op = static_cast<size_t>(remark.op);
  if (remark.op >= 0 && op < ops_.size() && ops_[op].remark != nullptr) return ops_[op].remark(remark);
  return Error(ErrorKind::internal, {.what = "a kernel has left a remark that its operation does not know",
                                     .where = fmt::format("rank {}", rank_.value),
                                     .values = fmt::format("operation {}, kind {}", remark.op, remark.kind)});
}

void KernelFaults::add_text(uint64_t agreed_hash, CallTextRef text) {
  const std::lock_guard lock(mutex_);
  texts_.add(agreed_hash, std::move(text));
}

void KernelFaults::add_call_text(uint64_t agreed_hash, CallTextRef text) {
  const std::lock_guard lock(mutex_);
  call_texts_.add(agreed_hash, std::move(text));
}

void KernelFaults::Texts::add(uint64_t hash, CallTextRef text) {
  const auto known = places_.find(hash);
  if (known != places_.end()) return row_.splice(row_.end(), row_, known->second);
  places_.emplace(hash, row_.emplace(row_.end(), hash, std::move(text)));
  if (row_.size() <= most_) return;
  places_.erase(row_.front().first);
  row_.pop_front();
}

CallTextRef KernelFaults::Texts::find(uint64_t hash) const {
  const auto known = places_.find(hash);
  return known == places_.end() ? nullptr : known->second->second;
}

CallTextRef KernelFaults::known_text(uint64_t agreed_hash) const {
  CallTextRef text = texts_.find(agreed_hash);
  return text != nullptr ? text : call_texts_.find(agreed_hash);
}

CallText KernelFaults::text_of(uint64_t agreed_hash, const KernelNames& names) const {
  if (const CallTextRef known = known_text(agreed_hash)) return *known;
  CallText unknown = unknown_call_text(agreed_hash);
  unknown.advice = names.mismatch_advice;
  return unknown;
}

// The kernel compares what the ranks agreed on, and where that is the same the number of the call.
std::string KernelFaults::mismatch(const FaultRecord& record, const KernelNames& names) const {
  const Rank peer{static_cast<int32_t>(record.word)};
  const bool differs_in_number = record.expected == record.epoch;
  const auto side = [&](uint64_t value) -> CallText {
    if (!differs_in_number) return text_of(value, names);
    return {.parts = {{names.op}, {fmt::format("its call number {}", value)}}};
  };
  return mismatch_text(record.epoch, {rank_, side(record.expected)}, {peer, side(record.seen)});
}

std::optional<CallText> KernelFaults::own_side(const FaultRecord& record) const {
  if (record.kind != KernelFaultKind::mismatch || record.expected == record.epoch) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const CallTextRef own = known_text(record.expected);
  if (own == nullptr || known_text(record.seen) != nullptr) return std::nullopt;
  return *own;
}

Error KernelFaults::error(const FaultRecord& record, const FlagLayout& flags) const {
  const std::lock_guard lock(mutex_);
  const auto op = static_cast<size_t>(record.op);
  KernelNames names;
  if (record.op >= 0 && op < ops_.size()) names = ops_[op];
  const std::string site =
      fmt::format("{}, epoch {}, role {}, CTA {}", names.op, record.epoch, role_of(record, names), record.cta);
  switch (record.kind) {
    case KernelFaultKind::mismatch: return Error(ErrorKind::mismatch, {.what = mismatch(record, names)});
    case KernelFaultKind::busy:
      return Error(ErrorKind::invalid_argument,
                   {.what = fmt::format("rank {} ran two calls of one communicator at once [{}]", rank_.value, site),
                    .advice = "replay graphs on one stream, and make other calls on that stream too"});
    case KernelFaultKind::deadline: break;
  }
  return Error(ErrorKind::deadline,
               {.what = fmt::format("rank {} waited {:.3g} s for {} to reach epoch {} (seen {}) [{}]", rank_.value,
                                    deadline_s_, name_of(record, flags, names), record.expected, record.seen, site),
                .advice = kLateAdvice});
}

FaultWatch::FaultWatch(const FaultRecord& record, std::function<void(const FaultRecord&)> tell)
    : record_(record), tell_(std::move(tell)), thread_([this] { watch(); }) {}

FaultWatch::~FaultWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

bool FaultWatch::look() {
  if (!has_fault(record_)) return false;
  tell_(record_);
  return true;
}

void FaultWatch::watch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool is_last = is_ending_;
    if (look() || is_last) return;
    ends_.wait_for(lock, kLook, [this] { return is_ending_; });
  }
}

}  // namespace tilewire

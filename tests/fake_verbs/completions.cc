// What becomes of requests: their completions, in an order of chance where the device promises none, and what a queue pair
// that fails takes with it.
#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "fake_verbs/nic.h"

namespace tilewire::fake_verbs {
namespace {

template <class T>
T take_random(std::vector<T>& from, std::mt19937_64& random) {
  const size_t which = random() % from.size();
  T taken = std::move(from[which]);
  from[which] = std::move(from.back());
  from.pop_back();
  return taken;
}

}  // namespace

// On RC one that fails takes the queue pair with it, and one that goes well is told of where that was asked.
void Nic::finish(const Message& message, Code code) {
  FakeQp& qp = *message.qp;
  if (qp.is_rc && code == Code::ok && !message.is_signalled) {
    ++qp.unsignalled;
    return;
  }
  qp.under_way -= 1 + std::exchange(qp.unsignalled, 0);
  Completion completion;
  completion.wc.wr_id = message.wr_id;
  completion.wc.status = qp.is_rc ? rc_status_of(code) : status_of(code);
  completion.wc.vendor_err = static_cast<uint32_t>(code);
  completion.wc.opcode = abi::kWcRdmaWrite;
  completion.wc.qp_num = qp.ex.qp_base.qp_num;
  complete(*qp.send_cq, completion);
  if (qp.is_rc && code != Code::ok && !qp.has_failed) flush(qp);
}

// A queue pair of RC that has failed: all that is under way, in its order, then its receives.
void Nic::flush(FakeQp& qp) {
  qp.has_failed = true;
  std::map<uint64_t, Message> left;
  const auto take = [&](const Message& message) {
    if (message.qp == &qp) left.emplace(message.number, message);
    return message.qp == &qp;
  };
  std::erase_if(queue_, take);
  std::erase_if(flying_, take);
  std::erase_if(unanswered_, [&](const auto& entry) { return take(entry.second); });
  for (const auto& [number, message] : left) finish(message, Code::flushed);
  flush_receives(qp);
}

void Nic::flush_receives(FakeQp& qp) {
  Completion completion;
  completion.wc.status = status_of(Code::flushed);
  completion.wc.vendor_err = static_cast<uint32_t>(Code::flushed);
  while (!qp.receives.empty()) {
    completion.wc.wr_id = qp.receives.pop();
    complete(*qp.recv_cq, completion);
  }
}

// The worst order for who wants to know why: all else of the queue pair is flushed first.
void Nic::fail_queue_pair(Message message) {
  FakeQp& qp = *message.qp;
  qp.has_failed = true;
  const auto flush = [&](const Message& other) {
    if (other.qp != &qp) return false;
    finish(other, Code::flushed);
    return true;
  };
  std::erase_if(queue_, flush);
  std::erase_if(flying_, flush);
  std::erase_if(unanswered_, [&](const auto& entry) { return flush(entry.second); });
  flush_receives(qp);
  message.give_up = Clock::now() + std::chrono::milliseconds(20);
  message.give_up_code = static_cast<Code>(settings.fail_code);
  const uint64_t number = message.number;
  unanswered_.emplace(number, std::move(message));
}

void Nic::complete(FakeCq& cq, const Completion& completion) {
  if (cq.held.size() + cq.ready.size() >= cq.most) {
    cq.is_lossy = true;
    ++counts["overflows"];
    return;
  }
  if (settings.direct != 0 || settings.held == 0 || cq.keeps_order) {
    cq.ready.push(completion);
    cq.ready_count.store(cq.ready.size(), std::memory_order_release);
    return;
  }
  cq.held.push_back(completion);
  if (std::find(holding_.begin(), holding_.end(), &cq) == holding_.end()) holding_.push_back(&cq);
}

bool Nic::release_held(bool all) {
  bool moved = false;
  for (FakeCq* cq : holding_) {
    while (cq->held.size() > (all ? 0 : settings.held)) {
      cq->ready.push(take_random(cq->held, random_));
      cq->ready_count.store(cq->ready.size(), std::memory_order_release);
      moved = true;
    }
  }
  if (all) holding_.clear();
  return moved;
}

bool Nic::fetch(FakeCq& cq, size_t most) {
  cq.batch.clear();
  cq.at = 0;
  while (!cq.ready.empty() && cq.batch.size() < most) {
    cq.batch.push_back(cq.ready.pop());
  }
  cq.ready_count.store(cq.ready.size(), std::memory_order_release);
  return !cq.batch.empty();
}

void Nic::forget(FakeCq* cq) { std::erase(holding_, cq); }

}  // namespace tilewire::fake_verbs

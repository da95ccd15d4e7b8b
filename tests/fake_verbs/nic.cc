#include "fake_verbs/nic.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

namespace tilewire::fake_verbs {
namespace {

using std::chrono::milliseconds;

constexpr int kPacketsAtOnce = 64;

std::atomic<Nic*> the_nic{nullptr};
std::atomic<Nic*> nic_of_parent{nullptr};
std::mutex& making() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}

template <class T>
T take_random(std::vector<T>& from, std::mt19937_64& random) {
  const size_t which = random() % from.size();
  T taken = std::move(from[which]);
  from[which] = std::move(from.back());
  from.pop_back();
  return taken;
}

}  // namespace

Nic& Nic::get() {
  if (Nic* nic = the_nic.load(std::memory_order_acquire)) return *nic;
  const std::lock_guard lock(making());
  if (the_nic.load() == nullptr) {
    // A child has no wire thread, and what the parent's held stays the parent's.
    static const int registered = pthread_atfork(nullptr, nullptr, [] {
      if (Nic* nic = the_nic.exchange(nullptr)) nic_of_parent.store(nic);
    });
    static_cast<void>(registered);
    the_nic.store(new Nic, std::memory_order_release);
  }
  return *the_nic.load();
}

Nic::Nic() {
  if (const char* text = std::getenv("FAKE_VERBS")) {
    const std::string problem = apply_settings(text, settings);
    if (!problem.empty()) {
      std::fprintf(stderr, "%s\n", problem.c_str());
      std::abort();
    }
  }
  parents_ = nic_of_parent.load();
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  settings_changed();
}

void Nic::settings_changed() {
  random_.seed(settings.seed);
  calls_.clear();
  requests_ = batches_ = 0;
  std::random_device entropy;
  while (devices.size() < settings.devices) {
    auto device = std::make_unique<FakeDevice>();
    device->nic = this;
    device->index = static_cast<uint32_t>(devices.size());
    device->name = "efa" + std::to_string(devices.size());
    device->gid = {0xfe, 0x80};
    for (size_t i = 8; i < device->gid.size(); ++i) device->gid[i] = static_cast<uint8_t>(entropy());
    devices.push_back(std::move(device));
  }
}

bool Nic::refuses(const char* call) {
  const uint64_t number = calls_[call]++;
  if (settings.refuse_call != call || settings.refuse_number != number) return false;
  errno = settings.refuse_error;
  return true;
}

void Nic::open(FakeDevice& device) {
  if (settings.direct != 0) return;
  if (device.socket < 0) make_socket(device);
  start_thread();
}

void Nic::start_thread() {
  if (std::exchange(has_thread_, true)) return;
  std::thread([this] { run(); }).detach();
}

void Nic::wake() {
  if (!is_asleep_.exchange(false)) return;
  const uint64_t one = 1;
  static_cast<void>(!write(wake_fd_, &one, sizeof(one)));
}

int Nic::send(FakeQp& qp) {
  ++batches_;
  const bool is_full = qp.under_way + qp.session.size() > qp.cap.max_send_wr;
  if (is_full || (settings.enomem_every > 0 && batches_ % settings.enomem_every == 0)) {
    ++counts["enomem"];
    return ENOMEM;
  }
  qp.under_way += static_cast<uint32_t>(qp.session.size());
  counts["posted"] += static_cast<int64_t>(qp.session.size());
  for (Message& message : qp.session) {
    message.number = next_number_++;
    if (settings.direct != 0) {
      carry_at_once(message);
    } else {
      queue_.push_back(std::move(message));
    }
  }
  qp.session.clear();
  if (settings.direct == 0) wake();
  return 0;
}

void Nic::forget(FakeQp* qp) {
  const auto is_its = [&](const auto& message) { return message.qp == qp; };
  std::erase_if(queue_, is_its);
  std::erase_if(flying_, is_its);
  std::erase_if(unanswered_, [&](const auto& entry) { return entry.second.qp == qp; });
}

// Cuts it into packets; here if it comes to nothing.
void Nic::start(Message& message) {
  for (uint32_t at = 0; at < message.bytes; at += static_cast<uint32_t>(settings.packet_bytes)) {
    message.unsent.push_back(at);
  }
  if (message.bytes == 0) message.unsent.push_back(0);
  message.give_up = Clock::now() + milliseconds(settings.silent_ms);
}

// What is wrong on this side, before anything is sent.
static Code check_source(const FakeQp& qp, const Message& message) {
  const auto found = qp.device->memory.find(message.lkey);
  if (found == qp.device->memory.end() || found->second->pd != qp.pd) return Code::invalid_lkey;
  return found->second->covers(message.local, message.bytes) ? Code::ok : Code::invalid_lkey;
}

bool Nic::is_to_fail(const Message& message) { return message.bytes > 0 && ++requests_ == settings.fail_nth; }

void Nic::carry_at_once(Message& message) {
  Code code = check_source(*message.qp, message);
  if (is_to_fail(message)) code = static_cast<Code>(settings.fail_code);
  if (code != Code::ok) return finish(message, code);
  FakeDevice* device = local(message.to);
  if (device == nullptr) return finish(message, Code::unreachable);
  const Packet packet = packet_of(message, 0);
  code = check_target(*device, packet);
  if (code == Code::ok) {
    if (message.bytes > 0) {
      std::memcpy(reinterpret_cast<void*>(message.remote), reinterpret_cast<const void*>(message.local), message.bytes);
    }
    code = deliver(*device, packet);
  }
  finish(message, code);
}

bool Nic::send_packets() {
  bool moved = false;
  while (!queue_.empty() && flying_.size() < settings.window) {
    Message message = std::move(queue_.front());
    queue_.pop_front();
    moved = true;
    Code code = check_source(*message.qp, message);
    const bool must_fail = is_to_fail(message);
    if (must_fail) code = static_cast<Code>(settings.fail_code);
    if (must_fail && settings.fatal != 0) {
      fail_queue_pair(std::move(message));
      continue;
    }
    if (message.qp->has_failed) code = Code::flushed;
    if (code != Code::ok) {
      finish(message, code);
      continue;
    }
    start(message);
    std::shuffle(message.unsent.begin(), message.unsent.end(), random_);
    flying_.push_back(std::move(message));
  }
  for (int i = 0; i < kPacketsAtOnce && !flying_.empty(); ++i) {
    const size_t which = random_() % flying_.size();
    Message& message = flying_[which];
    const Packet packet = packet_of(message, message.unsent.back());
    if (!transmit(packet, reinterpret_cast<const std::byte*>(message.local) + packet.offset)) break;
    moved = true;
    message.unsent.pop_back();
    if (!message.unsent.empty()) continue;
    const uint64_t number = message.number;
    unanswered_.emplace(number, std::move(message));
    if (which + 1 != flying_.size()) flying_[which] = std::move(flying_.back());
    flying_.pop_back();
  }
  return moved;
}

Packet Nic::packet_of(const Message& message, uint32_t offset) const {
  const FakeQp& qp = *message.qp;
  return {.has_immediate = message.has_immediate,
          .is_unsolicited = qp.is_unsolicited,
          .from = qp.device->gid,
          .to = message.to,
          .from_qp = qp.ex.qp_base.qp_num,
          .to_qp = message.to_qp,
          .qkey = message.qkey,
          .immediate = message.immediate,
          .rkey = message.rkey,
          .length = message.bytes,
          .offset = offset,
          .bytes = std::min(static_cast<uint32_t>(settings.packet_bytes), message.bytes - offset),
          .remote = message.remote,
          .number = message.number};
}

bool Nic::retry_not_ready() {
  bool moved = false;
  const auto now = Clock::now();
  for (auto& [number, message] : unanswered_) {
    if (message.again == Clock::time_point() || message.again > now) continue;
    Packet packet = packet_of(message, message.bytes);
    packet.bytes = 0;
    if (!transmit(packet, nullptr)) continue;
    message.again = {};
    moved = true;
  }
  return moved;
}

bool Nic::give_up_on_silent() {
  const auto now = Clock::now();
  std::vector<uint64_t> silent;
  for (const auto& [number, message] : unanswered_) {
    if (message.give_up < now && message.times_not_ready == 0) silent.push_back(number);
  }
  for (const uint64_t number : silent) settle(number, unanswered_.at(number).give_up_code);
  for (size_t i = 0; i < flying_.size();) {
    if (flying_[i].give_up >= now) {
      ++i;
      continue;
    }
    finish(flying_[i], Code::unresponsive);
    flying_.erase(flying_.begin() + static_cast<ptrdiff_t>(i));
  }
  return !silent.empty();
}

void Nic::settle(uint64_t number, Code code) {
  const auto found = unanswered_.find(number);
  if (found == unanswered_.end()) return;  // its queue pair is gone, or it has failed before
  finish(found->second, code);
  unanswered_.erase(found);
}

void Nic::finish(const Message& message, Code code) {
  FakeQp& qp = *message.qp;
  --qp.under_way;
  Completion completion;
  completion.wc.wr_id = message.wr_id;
  completion.wc.status = status_of(code);
  completion.wc.vendor_err = static_cast<uint32_t>(code);
  completion.wc.opcode = abi::kWcRdmaWrite;
  completion.wc.qp_num = qp.ex.qp_base.qp_num;
  complete(*qp.send_cq, completion);
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
  Completion completion;
  completion.wc.status = status_of(Code::flushed);
  completion.wc.vendor_err = static_cast<uint32_t>(Code::flushed);
  for (; !qp.receives.empty(); qp.receives.pop()) complete(*qp.recv_cq, completion);
  message.give_up = Clock::now() + milliseconds(20);
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
  if (settings.direct != 0 || settings.held == 0) {
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

void Nic::run() {
  for (;;) {
    bool moved = false;
    bool is_waiting = false;
    {
      const std::lock_guard lock(mutex);
      moved |= take_sockets();
      moved |= send_late_answers();
      moved |= send_packets();
      moved |= take_answers();
      moved |= retry_not_ready();
      moved |= give_up_on_silent();
      moved |= release_held(!moved);
      is_waiting = !queue_.empty() || !flying_.empty() || !unanswered_.empty() || !late_answers_.empty();
      if (!moved) is_asleep_.store(true);
    }
    if (moved) {
      std::this_thread::yield();
    } else {
      sleep(is_waiting);
    }
  }
}

}  // namespace tilewire::fake_verbs

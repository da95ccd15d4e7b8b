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
constexpr uint64_t kFirstMuteBitOfRoce = 16;

std::atomic<Nic*> the_nic{nullptr};
std::atomic<Nic*> nic_of_parent{nullptr};
std::mutex& making() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
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
  add_devices(/*is_roce=*/false, settings.devices);
  add_devices(/*is_roce=*/true, settings.roce);
}

void Nic::add_devices(bool is_roce, uint64_t count) {
  std::random_device entropy;
  const auto is_its = [=](const auto& device) { return device->is_roce == is_roce; };
  for (auto i = static_cast<uint64_t>(std::count_if(devices.begin(), devices.end(), is_its)); i < count; ++i) {
    auto device = std::make_unique<FakeDevice>();
    device->nic = this;
    device->is_roce = is_roce;
    device->index = static_cast<uint32_t>(is_roce ? kFirstMuteBitOfRoce + i : i);
    device->name = (is_roce ? "roce" : "efa") + std::to_string(i);
    if (is_roce) {
      device->gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10};  // of an IPv4 address
    } else {
      device->gid = {0xfe, 0x80};
    }
    for (size_t at = is_roce ? 13 : 8; at < device->gid.size(); ++at) device->gid[at] = static_cast<uint8_t>(entropy());
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

void Nic::post(Message message) {
  ++message.qp->under_way;
  ++counts["posted"];
  message.place = message.qp->posted++;
  message.number = next_number_++;
  if (settings.direct != 0) return carry_at_once(message);
  queue_.push_back(std::move(message));
  wake();
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
  if (message.is_inline || (qp.is_rc && message.bytes == 0)) return Code::ok;
  const auto found = qp.device->memory.find(message.lkey);
  if (found == qp.device->memory.end() || found->second->pd != qp.pd) return Code::invalid_lkey;
  return found->second->covers(message.local, message.bytes) ? Code::ok : Code::invalid_lkey;
}

bool Nic::is_to_fail(const Message& message) { return message.bytes > 0 && ++requests_ == settings.fail_nth; }

void Nic::carry_at_once(Message& message) {
  if (message.qp->has_failed) return finish(message, Code::flushed);
  Code code = check_source(*message.qp, message);
  if (is_to_fail(message)) code = static_cast<Code>(settings.fail_code);
  if (code != Code::ok) return finish(message, code);
  FakeDevice* device = local(message.to);
  if (device == nullptr) return finish(message, Code::unreachable);
  const Packet packet = packet_of(message, 0);
  code = check_target(*device, packet);
  if (code == Code::ok) {
    place(message.remote, message.source(), message.bytes);
    code = deliver(*device, packet);
  }
  finish(message, code);
}

// False where it has to wait.
bool Nic::take_next() {
  Message& next = queue_.front();
  bool is_fatal = false;
  if (!next.verdict) {
    next.verdict = check_source(*next.qp, next);
    if (is_to_fail(next)) {
      next.verdict = static_cast<Code>(settings.fail_code);
      is_fatal = settings.fatal != 0 && !next.qp->is_rc;
    }
  }
  if (next.qp->has_failed) next.verdict = Code::flushed;
  // What fails on RC is told behind all that went before.
  if (next.verdict != Code::ok && next.qp->is_rc && has_older(next)) return false;
  Message message = std::move(next);
  queue_.pop_front();
  if (is_fatal) {
    fail_queue_pair(std::move(message));
  } else if (message.verdict != Code::ok) {
    finish(message, *message.verdict);
  } else {
    start(message);
    std::shuffle(message.unsent.begin(), message.unsent.end(), random_);
    flying_.push_back(std::move(message));
  }
  return true;
}

bool Nic::has_older(const Message& message) const {
  const auto is_older = [&](const Message& other) { return other.qp == message.qp && other.number < message.number; };
  return std::any_of(flying_.begin(), flying_.end(), is_older) ||
         std::any_of(unanswered_.begin(), unanswered_.end(), [&](const auto& entry) { return is_older(entry.second); });
}

// Any of them; of a queue pair of RC the first, where routing is not adaptive.
size_t Nic::next_flying() {
  size_t which = random_() % flying_.size();
  const Message& message = flying_[which];
  if (!message.qp->is_rc || settings.adaptive != 0) return which;
  for (size_t i = 0; i < flying_.size(); ++i) {
    if (flying_[i].qp == message.qp && flying_[i].number < flying_[which].number) which = i;
  }
  return which;
}

bool Nic::send_packets() {
  bool moved = false;
  while (!queue_.empty() && flying_.size() < settings.window && take_next()) moved = true;
  for (int i = 0; i < kPacketsAtOnce && !flying_.empty(); ++i) {
    const size_t which = next_flying();
    Message& message = flying_[which];
    const Packet packet = packet_of(message, message.unsent.back());
    if (!transmit(packet, message.source() + packet.offset)) break;
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
          .number = message.number,
          .place = message.place};
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
  for (const uint64_t number : silent) {
    if (const auto found = unanswered_.find(number); found != unanswered_.end())
      settle(number, found->second.give_up_code);
  }
  const auto is_silent = [&](const Message& message) { return message.give_up < now; };
  for (auto found = flying_.begin(); (found = std::find_if(found, flying_.end(), is_silent)) != flying_.end();) {
    const Message message = std::move(*found);
    flying_.erase(found);
    finish(message, Code::unresponsive);
    found = flying_.begin();  // others may have gone with it
  }
  return !silent.empty();
}

void Nic::settle(uint64_t number, Code code) {
  const auto found = unanswered_.find(number);
  if (found == unanswered_.end()) return;  // its queue pair is gone, or it has failed before
  const Message message = std::move(found->second);
  unanswered_.erase(found);
  finish(message, code);
}

void Nic::run() {
  for (;;) {
    bool moved = false;
    bool is_waiting = false;
    {
      const std::lock_guard lock(mutex);
      moved |= take_sockets();
      moved |= send_late_answers();
      moved |= send_packets();
      fail_refusers();
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

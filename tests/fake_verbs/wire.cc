// The target's side of the wire, and the sockets between processes.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "fake_verbs/nic.h"

namespace tilewire::fake_verbs {
namespace {

constexpr size_t kMostPacketBytes = 64 << 10;
constexpr int kDatagramsAtOnce = 64;

// An abstract name: nothing to remove, and gone with its process.
socklen_t name_of(const abi::Gid& gid, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  int length = std::snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "tilewire-fake-verbs-");
  for (const uint8_t byte : gid) {
    length += std::snprintf(address.sun_path + 1 + length, sizeof(address.sun_path) - 1 - static_cast<size_t>(length),
                            "%02x", byte);
  }
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
}

}  // namespace

void place(uint64_t to, const std::byte* from, uint32_t bytes) {
  if (bytes == sizeof(uint64_t) && to % sizeof(uint64_t) == 0) {
    uint64_t value;
    std::memcpy(&value, from, sizeof(value));
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(to)).store(value, std::memory_order_release);
  }
  if (bytes > 0) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
}

void Nic::make_socket(FakeDevice& device) {
  device.socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_un address;
  const socklen_t length = name_of(device.gid, address);
  const int bytes = 4 << 20;
  setsockopt(device.socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
  if (device.socket < 0 || bind(device.socket, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    std::perror("fake_verbs: a socket");
    std::abort();
  }
}

FakeDevice* Nic::local(const abi::Gid& gid) {
  for (const auto& device : devices) {
    if (device->gid == gid) return device.get();
  }
  return nullptr;
}

bool Nic::transmit(const Packet& packet, const std::byte* data) {
  if (local(packet.to) != nullptr) {
    take_packet(packet, data);
    return true;
  }
  FakeDevice* from = local(packet.from);
  sockaddr_un address;
  iovec parts[] = {{const_cast<Packet*>(&packet), sizeof(packet)}, {const_cast<std::byte*>(data), packet.bytes}};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = name_of(packet.to, address);
  message.msg_iov = parts;
  message.msg_iovlen = packet.bytes > 0 ? 2 : 1;
  if (sendmsg(from->socket, &message, MSG_NOSIGNAL) >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return false;
  // Nobody is there: it is lost, and its sender gives up before long.
  const auto soon = Clock::now() + std::chrono::milliseconds(settings.gone_ms);
  for (Message& other : flying_) {
    if (other.number == packet.number) other.give_up = std::min(other.give_up, soon);
  }
  return true;
}

bool Nic::take_sockets() {
  bool moved = false;
  alignas(Packet) static thread_local std::byte buffer[sizeof(Packet) + kMostPacketBytes];
  for (const auto& device : devices) {
    for (int i = 0; i < kDatagramsAtOnce && device->socket >= 0; ++i) {
      const ssize_t bytes = recv(device->socket, buffer, sizeof(buffer), 0);
      if (bytes < static_cast<ssize_t>(sizeof(Packet))) break;
      Packet packet;
      std::memcpy(&packet, buffer, sizeof(packet));
      if (bytes == static_cast<ssize_t>(sizeof(packet) + packet.bytes)) take_packet(packet, buffer + sizeof(packet));
      moved = true;
    }
  }
  return moved;
}

void Nic::take_packet(const Packet& packet, const std::byte* data) {
  FakeDevice* device = local(packet.to);
  if (device == nullptr || is_mute(*device)) return;
  if (packet.is_answer != 0) {
    answers_.push_back(packet);
  } else {
    take_data(*device, packet, data);
  }
}

Code Nic::check_receiver(const FakeQp& qp, const Packet& packet) {
  if (qp.ex.qp_base.state < abi::kQpRtr) return Code::bad_qpn;
  if (qp.is_rc) {
    const bool is_its = qp.peer == packet.from && qp.peer_number == packet.from_qp && !qp.has_failed;
    return is_its ? Code::ok : Code::bad_qpn;
  }
  if (qp.qkey != packet.qkey) return Code::bad_qpn;
  if (qp.pd->known.find(packet.from) == qp.pd->known.end()) return Code::unknown_peer;
  return packet.has_immediate && packet.is_unsolicited != qp.is_unsolicited ? Code::feature_mismatch : Code::ok;
}

Code Nic::check_target(FakeDevice& device, const Packet& packet) const {
  const auto found = device.qps.find(packet.to_qp);
  if (found == device.qps.end()) return Code::bad_qpn;
  const FakeQp& qp = *found->second;
  if (const Code code = check_receiver(qp, packet); code != Code::ok) return code;
  const auto memory = device.memory.find(packet.rkey);
  if (memory == device.memory.end() || memory->second->pd != qp.pd) return Code::bad_address;
  if ((memory->second->access & static_cast<int>(abi::kAccessRemoteWrite)) == 0) return Code::bad_address;
  return memory->second->covers(packet.remote, packet.length) ? Code::ok : Code::bad_address;
}

void Nic::take_data(FakeDevice& device, const Packet& packet, const std::byte* data) {
  const Inbound key{packet.from, packet.from_qp, packet.number};
  Code code = check_target(device, packet);
  if (code == Code::ok) {
    place(packet.remote + packet.offset, data, packet.bytes);
    uint64_t& here = inbound_[key];
    here += packet.bytes;
    if (here < packet.length) return;
    if (!device.qps.at(packet.to_qp)->is_rc) code = deliver(device, packet);
    if (code == Code::not_ready) return answer(packet, code);
  }
  inbound_.erase(key);
  const auto found = device.qps.find(packet.to_qp);
  if (code == Code::bad_qpn || !found->second->is_rc) return answer(packet, code);
  found->second->early.emplace(packet.place, FakeQp::Early{packet, code});
  take_in_order(device, *found->second);
}

// RC: whatever order data has come in, what is told of requests at both ends keeps theirs.
void Nic::take_in_order(FakeDevice& device, FakeQp& qp) {
  for (auto next = qp.early.begin(); next != qp.early.end() && next->first == qp.taken; next = qp.early.begin()) {
    const FakeQp::Early early = next->second;
    qp.early.erase(next);
    ++qp.taken;
    const Code code = early.code == Code::ok ? deliver(device, early.packet) : early.code;
    answer(early.packet, code);
    if (code != Code::ok) refusers_.emplace_back(&device, early.packet.to_qp);
  }
}

// What they have under way may be just what is looked at where they refuse.
void Nic::fail_refusers() {
  for (const auto& [device, number] : std::exchange(refusers_, {})) {
    const auto found = device->qps.find(number);
    if (found != device->qps.end() && !found->second->has_failed) flush(*found->second);
  }
}

Code Nic::deliver(FakeDevice& device, const Packet& packet) {
  if (!packet.has_immediate) return Code::ok;
  FakeQp& qp = *device.qps.at(packet.to_qp);
  Completion completion;
  completion.wc.wr_id = random_();  // means nothing where no receive was taken
  if (!qp.is_unsolicited) {
    if (qp.receives.empty()) {
      ++counts["not_ready"];
      return Code::not_ready;
    }
    completion.wc.wr_id = qp.receives.pop();
  }
  completion.wc.opcode = abi::kWcRecvRdmaWithImm;
  completion.wc.imm_data = packet.immediate;
  completion.wc.byte_len = packet.length;
  completion.wc.qp_num = packet.to_qp;
  completion.wc.src_qp = packet.from_qp;
  if (!qp.is_rc) completion.ah_number = device.ah_numbers.at(packet.from);
  complete(*qp.recv_cq, completion);
  if (settings.direct != 0) return Code::ok;
  uint64_t& newest = newest_[{packet.from, packet.from_qp, packet.to, packet.to_qp}];
  if (packet.number < newest) ++counts["overtaken"];
  newest = std::max(newest, packet.number);
  return Code::ok;
}

void Nic::answer(const Packet& packet, Code code) {
  const Packet back{.is_answer = 1, .code = code, .from = packet.to, .to = packet.from, .number = packet.number};
  if (!late_answers_.empty() || !transmit(back, nullptr)) late_answers_.push_back(back);
}

bool Nic::send_late_answers() {
  bool moved = false;
  for (; !late_answers_.empty() && transmit(late_answers_.front(), nullptr); moved = true) late_answers_.pop_front();
  return moved;
}

bool Nic::take_answers() {
  const bool moved = !answers_.empty();
  while (!answers_.empty()) {
    const Packet packet = answers_.front();
    answers_.pop_front();
    const auto found = unanswered_.find(packet.number);
    if (packet.code == Code::bad_qpn && found != unanswered_.end() && found->second.qp->is_rc) {
      // Of RC nobody says so: it is tried again until its sender has had enough.
      found->second.give_up =
          std::min(found->second.give_up, Clock::now() + std::chrono::milliseconds(settings.gone_ms));
      continue;
    }
    // RC: others would have to wait behind it. Credits keep senders from that, so once is an error.
    if (packet.code == Code::not_ready && found != unanswered_.end() && !found->second.qp->is_rc) {
      Message& message = found->second;
      ++message.times_not_ready;
      if (message.qp->rnr_retry == 7 || message.times_not_ready <= message.qp->rnr_retry) {
        message.again = Clock::now() + std::chrono::milliseconds(1);
        continue;
      }
    }
    if (found != unanswered_.end()) {
      settle(packet.number, packet.code);
      continue;
    }
    // Its first packets were refused while others had not left yet.
    const auto flying = std::find_if(flying_.begin(), flying_.end(),
                                     [&](const Message& message) { return message.number == packet.number; });
    if (flying == flying_.end()) continue;
    const Message message = std::move(*flying);
    flying_.erase(flying);
    finish(message, packet.code);
  }
  return moved;
}

void Nic::sleep(bool is_waiting) {
  pollfd fds[17] = {{.fd = wake_fd_, .events = POLLIN, .revents = 0}};
  nfds_t count = 1;
  {
    const std::lock_guard lock(mutex);
    for (const auto& device : devices) {
      if (device->socket >= 0 && count < std::size(fds))
        fds[count++] = {.fd = device->socket, .events = POLLIN, .revents = 0};
    }
  }
  poll(fds, count, is_waiting ? 1 : 100);
  is_asleep_.store(false);
  uint64_t woken = 0;
  static_cast<void>(!read(wake_fd_, &woken, sizeof(woken)));
}

}  // namespace tilewire::fake_verbs

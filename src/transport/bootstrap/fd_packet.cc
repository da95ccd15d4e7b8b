#include "transport/bootstrap/fd_packet.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace tilewire {
namespace {

// Takes every descriptor that came, so that none is left open unseen; more than one makes the packet wrong.
UniqueFd take_descriptors(msghdr& message, bool& is_wrong) {
  UniqueFd taken;
  for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof fd);
      is_wrong = is_wrong || taken.is_open();
      taken.reset(fd);
    }
  }
  return taken;
}

}  // namespace

bool send_packet(int socket, const Bytes& bytes, int fd) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

Received receive_packet(int socket, FdPacket& out) {
  std::array<std::byte, kMaxPacketBytes> buffer;
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Received::nothing_yet : Received::gone;
  bool is_wrong = (message.msg_flags & MSG_TRUNC) != 0;
  out.fd = take_descriptors(message, is_wrong);
  // Too many for `control` leave some in it; none at all means that the kernel could not open even the first.
  out.has_lost_fd = (message.msg_flags & MSG_CTRUNC) != 0 && !out.fd.is_open();
  is_wrong = is_wrong || ((message.msg_flags & MSG_CTRUNC) != 0 && out.fd.is_open());
  if (got == 0 || is_wrong) return Received::gone;
  out.bytes.assign(buffer.begin(), buffer.begin() + got);
  return Received::packet;
}

}  // namespace tilewire

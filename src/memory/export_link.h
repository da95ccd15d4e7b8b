// Tests only: the exports of an arena over a Unix socket, descriptors and all.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "memory/arena.h"

namespace tilewire {

// Two ends of a connection between a process and one that it forks.
struct SocketPair {
  UniqueFd parent;
  UniqueFd child;

  SocketPair() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("socketpair");
    parent.reset(ends[0]);
    child.reset(ends[1]);
  }
};

namespace export_link_detail {

struct Piece {
  ArenaRange range;
  int64_t left = 0;  // pieces that follow
};

struct Message {
  Piece piece;
  iovec data{&piece, sizeof(piece)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};

  Message() {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
};

}  // namespace export_link_detail

// The exports of `arena` from number `first` on; at least one.
inline void send_exports(int socket, const Arena& arena, size_t first = 0) {
  for (size_t i = first; i < arena.exports().size(); ++i) {
    export_link_detail::Message message;
    message.piece = {arena.exports()[i].range, static_cast<int64_t>(arena.exports().size() - i - 1)};
    cmsghdr* const header = CMSG_FIRSTHDR(&message.header);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &arena.exports()[i].fd, sizeof(int));
    if (sendmsg(socket, &message.header, MSG_NOSIGNAL) < 0) throw std::runtime_error("sendmsg");
  }
}

// Maps what rank `p` sent by one send_exports.
inline void map_exports(int socket, Arena& arena, Rank p) {
  for (int64_t left = 1; left > 0;) {
    export_link_detail::Message message;
    if (recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC) <= 0) throw std::runtime_error("recvmsg");
    const cmsghdr* const header = CMSG_FIRSTHDR(&message.header);
    if (header == nullptr) throw std::runtime_error("no descriptor");
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof(int));
    arena.map_peer(p, message.piece.range, UniqueFd(fd));
    left = message.piece.left;
  }
}

}  // namespace tilewire

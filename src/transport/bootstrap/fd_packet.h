// Whole packets with a file descriptor or none, over Unix sockets (SOCK_SEQPACKET) that do not block.
#pragma once

#include <cstddef>

#include "base/unique_fd.h"
#include "transport/bootstrap/byte_codec.h"

namespace tilewire {

inline constexpr size_t kMaxPacketBytes = 2048;

struct FdPacket {
  Bytes bytes;
  UniqueFd fd;
  bool has_lost_fd = false;  // one came with it, and this process had none left to take it
};

// `fd`: -1 for none; stays the caller's. False when the other side is gone. Packets are small and few, so the socket
// always has room for one; a peer that reads none of them counts as gone.
bool send_packet(int socket, const Bytes& bytes, int fd = -1);

// `gone` too for what is no packet of ours: longer than kMaxPacketBytes, or with several descriptors.
enum class Received { packet, nothing_yet, gone };
Received receive_packet(int socket, FdPacket& out);

}  // namespace tilewire

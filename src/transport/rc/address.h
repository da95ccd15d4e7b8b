// What a rank tells the others so that they can connect to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/bootstrap/byte_codec.h"
#include "transport/rc/rc_options.h"
#include "transport/verbs/memory.h"

namespace tilewire {

// One end of a queue pair, for the rank it is meant for.
struct RcQueueEnd {
  Rank peer;
  int32_t channel = 0;
  uint32_t number = 0;     // of the queue pair
  uint32_t first_psn = 0;  // of the packets that it sends
  uint64_t scratch = 0;    // address of its RcQueueScratch

  friend bool operator==(const RcQueueEnd&, const RcQueueEnd&) = default;
};

struct RcAddress {
  RcSignal signal = RcSignal::immediate;
  int32_t channels = 0;
  verbs::abi::LinkLayer link_layer = verbs::abi::kLinkUnspecified;
  verbs::abi::Mtu mtu = verbs::abi::kMtu1024;  // the longest packets it takes
  uint16_t lid = 0;
  verbs::abi::Gid gid{};
  std::string port{};                    // "mlx5_0:1", for errors
  uint64_t arena = 0;                    // address of offset 0
  std::vector<verbs::MemoryKey> keys{};  // remote, of the arena
  uint32_t scratch_key = 0;              // remote
  uint32_t receive_entries = 0;
  std::vector<RcQueueEnd> queues{};

  Bytes pack() const;
  // Throws Error(mismatch) for what is no address of this transport.
  static RcAddress unpack(Rank from, std::span<const std::byte> bytes);

  friend bool operator==(const RcAddress&, const RcAddress&) = default;
};

}  // namespace tilewire

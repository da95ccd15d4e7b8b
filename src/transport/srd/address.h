// What a rank tells the others so that they can write to it over SRD.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "transport/verbs/memory.h"

namespace tilewire {

struct SrdAddress {
  bool is_unsolicited = false;
  verbs::abi::Gid gid{};
  std::string port{};  // "rdmap0s6:1", for errors
  uint32_t qkey = 0;
  uint64_t arena = 0;                    // address of offset 0
  std::vector<verbs::MemoryKey> keys{};  // remote, of the arena
  uint64_t scratch = 0;                  // address of its SrdScratch
  uint32_t scratch_key = 0;              // remote
  uint32_t credits = 0;                  // immediates of one rank that may wait at each queue pair
  std::vector<uint32_t> queues{};        // numbers of the queue pairs, by channel
  uint32_t report_queue = 0;

  Bytes pack() const;
  // Throws Error(mismatch) for what is no address of this transport.
  static SrdAddress unpack(Rank from, std::span<const std::byte> bytes);

  friend bool operator==(const SrdAddress&, const SrdAddress&) = default;
};

// The immediate of a report: how many immediates have been taken from a channel since the last one. Reports may pass
// each other, so they are added up.
struct SrdReport {
  static constexpr uint32_t kChannels = 1u << 8;
  static constexpr uint32_t kMost = (1u << 24) - 1;

  uint32_t channel = 0;
  uint32_t taken = 0;

  uint32_t pack() const { return channel << 24 | taken; }
  static SrdReport unpack(uint32_t bits) { return {bits >> 24, bits & kMost}; }
};

}  // namespace tilewire

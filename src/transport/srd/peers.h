// The ranks that a rank writes to and hears of over SRD: how to reach each, and whose an immediate is.
//
// Thread-safety: PeerArena::learn() as it says; all else by one thread.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/srd/address.h"
#include "transport/srd/lane.h"
#include "transport/verbs/arena_memory.h"

namespace tilewire {

struct SrdPeer {
  Rank rank;
  verbs::PeerArena arena{};
  std::vector<SrdPath> paths{};            // by channel
  std::vector<verbs::TakenCount> taken{};  // of its immediates, by channel
  SrdPath report_path{};
};

// Where an immediate comes from.
struct SrdSource {
  static constexpr uint32_t kReports = UINT32_MAX;  // as channel

  Rank rank;
  uint32_t channel = 0;
};

class SrdPeers {
 public:
  struct Own {
    SrdLibraries libraries;
    const SrdPort* port = nullptr;
    verbs::abi::Pd* pd = nullptr;
    uint64_t scratch = 0;  // where an immediate alone has its piece
    uint32_t scratch_key = 0;
    uint32_t credits = 0;  // that peers have here
    bool is_unsolicited = false;
    size_t channels = 0;
    std::string where{};
  };

  SrdPeers(size_t ranks, const std::vector<Rank>& peers);

  // Makes the address handle, and all there is to know of that peer. Throws Error(mismatch) where the two cannot talk to
  // each other, Error(resource).
  void connect(const Own& own, Rank rank, const SrdAddress& address);

  size_t ranks() const { return all_.size(); }
  // Null for a rank that is no peer.
  SrdPeer* find(Rank rank);
  SrdPeer& at(Rank rank) { return all_[static_cast<size_t>(rank.value)]; }
  // Null for one that is no peer.
  const SrdSource* find_source(uint64_t source) const;
  void forget_handles() { handles_.clear(); }

 private:
  struct Known {
    verbs::Ah handle;
    uint32_t number = 0;
  };

  const Known& handle_of(const Own& own, Rank rank, const SrdAddress& address);

  std::vector<SrdPeer> all_;                  // by rank
  std::map<verbs::abi::Gid, Known> handles_;  // one for all ranks of a device
  std::unordered_map<uint64_t, SrdSource> sources_;
};

}  // namespace tilewire

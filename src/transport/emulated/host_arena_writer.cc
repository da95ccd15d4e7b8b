#include <fmt/format.h>
#include <tilewire/error.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "memory/bell.h"
#include "memory/mapping.h"
#include "transport/emulated/local_reach.h"

namespace tilewire {
namespace {

class HostArenaWriter final : public ArenaWriter {
 public:
  HostArenaWriter(const TransportContext& context, const std::string& where)
      : own_(context.arena), peers_(static_cast<size_t>(context.ranks)) {
    for (const Rank p : context.peers) reach(context, p, where);
  }

  bool begin(const WriteRequest& request) override {
    std::byte* arena = peers_[static_cast<size_t>(request.peer.value)].arena;
    if (request.kind == RequestKind::write_value) {
      auto* word = reinterpret_cast<uint64_t*>(arena + request.dst_offset);
      std::atomic_ref(*word).store(request.value, std::memory_order_seq_cst);
      wake_sleepers(arena_bell(arena));
    } else if (request.bytes > 0) {
      std::memcpy(arena + request.dst_offset, own_ + request.src_offset, request.bytes);
    }
    ++landed_;
    return true;
  }
  uint64_t landed() override { return landed_; }

 private:
  struct Peer {
    std::byte* arena = nullptr;
    Mapping mapping;
  };

  void reach(const TransportContext& context, Rank p, const std::string& where) {
    const auto r = static_cast<size_t>(p.value);
    Peer& peer = peers_.at(r);
    const LocalReach none;
    const LocalReach& ways = context.local_reach ? *context.local_reach : none;
    if (r < ways.arena_bases.size() && ways.arena_bases[r] != nullptr) {
      peer.arena = ways.arena_bases[r];
    } else if (r < ways.arena_fds.size() && ways.arena_fds[r] >= 0) {
      peer.mapping = Mapping::share(ways.arena_fds[r], static_cast<int64_t>(context.arena_bytes), where,
                                    fmt::format("arena of rank {}", p.value));
      peer.arena = peer.mapping.base();
    } else {
      throw Error(ErrorKind::invalid_argument, {.what = "the emulated transport has no way to the arena of a peer",
                                                .where = where,
                                                .values = fmt::format("peer = {}", p.value),
                                                .limit = "all ranks must be on one host",
                                                .advice = "use another transport between hosts"});
    }
  }

  std::byte* own_;
  std::vector<Peer> peers_;  // by rank
  uint64_t landed_ = 0;
};

}  // namespace

std::unique_ptr<ArenaWriter> make_host_arena_writer(const TransportContext& context, const std::string& where) {
  return std::make_unique<HostArenaWriter>(context, where);
}

}  // namespace tilewire

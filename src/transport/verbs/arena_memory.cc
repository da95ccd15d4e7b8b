#include "transport/verbs/arena_memory.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <utility>

namespace tilewire::verbs {

void ArenaMemory::add(uint64_t begin, uint64_t bytes, bool is_relaxed) {
  if (bytes == 0) return;
  Mr memory = register_memory(verbs_, pd_,
                              {.begin = context_.arena + begin,
                               .bytes = bytes,
                               .is_relaxed = is_relaxed,
                               .gpu = context_.gpu_memory.get(),
                               .offset = begin},
                              where_);
  ranges_.add(begin, bytes, context_.arena_bytes);
  const std::lock_guard lock(mutex_);
  keys_.add({begin, begin + bytes, memory->lkey});
  untold_.push_back({begin, begin + bytes, memory->rkey});
  memory_.push_back(std::move(memory));
}

void ArenaMemory::remove(uint64_t begin, uint64_t bytes) {
  if (bytes == 0) return;
  ranges_.remove(begin, bytes);
  const std::lock_guard lock(mutex_);
  const uint32_t key = keys_.remove(begin);
  std::erase_if(untold_, [=](const MemoryKey& untold) { return untold.begin == begin; });
  std::erase_if(memory_, [=](const Mr& memory) { return memory->lkey == key; });
}

void ArenaMemory::cut(const WriteRequest& request, const PeerArena* peer, const Caps& caps, uint64_t most_bytes,
                      std::vector<Piece>& pieces) const {
  if (peer == nullptr || !peer->is_peer) {
    throw Error(ErrorKind::invalid_argument, {.what = "a request is for a rank that is no peer",
                                              .where = where_,
                                              .values = fmt::format("peer = {}", request.peer.value)});
  }
  check_request(request, caps, ranges_, where_);
  cut_request(request,
              {.own_arena = reinterpret_cast<uint64_t>(context_.arena),
               .own_keys = &keys_,
               .peer_arena = peer->address,
               .peer_keys = &peer->keys},
              most_bytes, pieces, where_);
}

std::vector<MemoryKey> ArenaMemory::untold_keys() {
  const std::lock_guard lock(mutex_);
  return std::exchange(untold_, {});
}

}  // namespace tilewire::verbs

// A request as a device takes it: addresses instead of offsets, and one key on either side of each piece.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/transport.h"
#include "transport/verbs/memory.h"

namespace tilewire::verbs {

struct Piece {
  uint64_t src = 0;  // addresses
  uint64_t dst = 0;
  uint32_t src_key = 0;
  uint32_t dst_key = 0;
  uint64_t bytes = 0;
};

// The memory that a transport writes from, and that of a peer.
struct Ends {
  uint64_t own_arena = 0;  // address of offset 0
  const KeyTable* own_keys = nullptr;
  uint64_t peer_arena = 0;
  const KeyTable* peer_keys = nullptr;
};

// Cuts a request that check_request() has passed into `pieces`, each with one key on either side and no longer than a
// message: one piece without a source for a value, none where there are no bytes. Throws Error(invalid_argument) where
// the peer has registered nothing.
void cut_request(const WriteRequest& request, const Ends& ends, uint64_t most_bytes, std::vector<Piece>& pieces,
                 const std::string& where);

// All parts of a request wait in one send queue. Throws Error(resource) where they are more than it has entries, and would
// be refused for ever; `option` sets those.
void check_parts(const WriteRequest& request, size_t parts, uint32_t entries, const char* option,
                 const std::string& where);

}  // namespace tilewire::verbs

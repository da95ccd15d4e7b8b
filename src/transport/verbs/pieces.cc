#include "transport/verbs/pieces.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

namespace tilewire::verbs {

void cut_request(const WriteRequest& request, const Ends& ends, uint64_t most_bytes, std::vector<Piece>& pieces,
                 const std::string& where) {
  pieces.clear();
  const bool is_value = request.kind == RequestKind::write_value;
  uint64_t left = is_value ? sizeof(request.value) : request.bytes;
  for (uint64_t at = 0; left > 0;) {
    const uint64_t dst_offset = request.dst_offset + at;
    const MemoryKey* dst = ends.peer_keys->find(dst_offset);
    if (dst == nullptr) {
      throw Error(ErrorKind::invalid_argument,
                  {.what = "the peer has registered no memory there",
                   .where = where,
                   .values = fmt::format("request {} to rank {}: dst_offset = {}, bytes = {}", request.id,
                                         request.peer.value, request.dst_offset, request.bytes)});
    }
    Piece piece{.dst = ends.peer_arena + dst_offset, .dst_key = dst->key};
    piece.bytes = std::min({left, dst->end - dst_offset, most_bytes});
    if (!is_value) {
      const MemoryKey* src = ends.own_keys->find(request.src_offset + at);
      piece.src = ends.own_arena + request.src_offset + at;
      piece.src_key = src->key;
      piece.bytes = std::min(piece.bytes, src->end - (request.src_offset + at));
    }
    pieces.push_back(piece);
    at += piece.bytes;
    left -= piece.bytes;
  }
}

void check_parts(const WriteRequest& request, size_t parts, uint32_t entries, const char* option,
                 const std::string& where) {
  if (parts <= entries) return;
  throw Error(ErrorKind::resource,
              {.what = "a request lies across more registered ranges than a send queue has entries",
               .where = where,
               .values = fmt::format("request {} to rank {}: src_offset = {}, dst_offset = {}, bytes = {}, parts = {}",
                                     request.id, request.peer.value, request.src_offset, request.dst_offset,
                                     request.bytes, parts),
               .limit = fmt::format("{} = {}", option, entries),
               .advice = fmt::format("raise {}, or arena_initial_bytes so that there are fewer ranges", option)});
}

}  // namespace tilewire::verbs

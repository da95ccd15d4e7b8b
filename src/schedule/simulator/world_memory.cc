// Reads and writes: is the data there that a role expects, and may it be written.
#include <fmt/format.h>

#include <algorithm>

#include "schedule/simulator/world.h"

namespace tilewire {

// Addresses count from behind the flag area.
int64_t World::half_base(int32_t call) const {
  const int half = ArenaLayout::half_of(program_->epoch(call));
  const SimCall& c = program_->calls[static_cast<size_t>(call)];
  if (c.has_moved_halves()) return c.moved_half(half);
  return half * program_->arena.half_stride_bytes;
}

bool World::locate(const MemoryRange& range, int32_t call, int32_t agent, Place& place) {
  const ArenaLayout& arena = program_->arena;
  const bool is_user = range.area == SimArea::user;
  const int64_t base = is_user ? 2 * arena.half_stride_bytes : half_base(call);
  place.rank = range.rank.value;
  place.begin = base + range.offset_bytes;
  place.end = place.begin + range.bytes;
  place.area = is_user ? 2 : ArenaLayout::half_of(program_->epoch(call));
  const int64_t low = place.area * arena.half_stride_bytes;
  const int64_t high = low + (is_user ? arena.user_stride_bytes : arena.half_stride_bytes);
  const bool is_rank = range.rank.value >= 0 && range.rank.value < topology_.ranks;
  if (is_rank && range.offset_bytes >= 0 && range.bytes >= 0 && place.begin >= low && place.end <= high) return true;
  const int32_t to_blame = agent >= 0 ? agents_[static_cast<size_t>(agent)].rank : std::max(0, range.rank.value);
  add_violation(ViolationKind::outside_half, to_blame, agent,
                fmt::format("bytes {}..{} of rank {} are outside {}..{}, the {} of call {}", place.begin, place.end,
                            range.rank.value, low, high, is_user ? "user area" : "half", program_->epoch(call)),
                -1, place.begin, place.end);
  return false;
}

void World::check_read(int32_t agent, const MemoryRange& from, const Content& content) {
  if (from.bytes == 0) return;
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  const int32_t call = ranks_[static_cast<size_t>(s.rank)].call;
  Place place;
  if (!locate(from, call, agent, place)) return;
  const ContentKey key = content_key(content, call);
  const int64_t origin = place.begin - content.offset_bytes;
  int32_t writer = s.rank;
  if (!memory(place).holds(place.begin, place.end, key, origin, writer)) {
    return explain_read(agent, place, {.begin = place.begin, .end = place.end, .origin = origin, .content = key});
  }
  if (content.family == kRecordFamily || writer == s.rank || from.rank.value != s.rank) return;
  const int64_t begun = word_at(s.rank, program_->arena.flags.begun(Rank{writer}));
  if (words_.seen(begun).acquired == call + 1) return;
  add_violation(ViolationKind::record_unmatched, s.rank, agent,
                fmt::format("reads {}, brought by rank {}, before that rank's call record was looked at",
                            content_text(key, program_->first_epoch), writer),
                begun, place.begin, place.end);
}

// What is there instead, and what that means.
void World::explain_read(int32_t agent, const Place& place, const Segment& expected) {
  found_.clear();
  memory(place).collect(place.begin, place.end, found_);
  const auto bad = std::find_if(found_.begin(), found_.end(), [&](const Segment& s) {
    return s.content != expected.content || s.origin != expected.origin;
  });
  const Segment seen = *bad;
  ViolationKind kind = ViolationKind::read_too_early;
  std::string elsewhere;
  if (seen.previous == expected.content || (seen.content != 0 && call_of(seen.content) > call_of(expected.content))) {
    kind = ViolationKind::overwritten;
  } else {
    for (const Segment& s : memory(place).segments()) {
      const bool is_here = s.content == expected.content && s.origin != expected.origin;
      if (!is_here && s.previous != expected.content) continue;
      kind = ViolationKind::wrong_slot;
      elsewhere = fmt::format("; it {} at {}..{}", is_here ? "lies" : "lay", s.begin, s.end);
      break;
    }
    const bool is_same_call = seen.content != 0 && call_of(seen.content) == call_of(expected.content);
    if (is_same_call && seen.content != expected.content) kind = ViolationKind::wrong_slot;
  }
  add_violation(kind, agents_[static_cast<size_t>(agent)].rank, agent,
                fmt::format("bytes {}..{} of rank {} should be {}, but hold {}{}", bad->begin, bad->end, place.rank,
                            content_text(expected.content, program_->first_epoch),
                            content_text(seen.content, program_->first_epoch), elsewhere),
                -1, bad->begin, bad->end);
}

void World::apply_access(int32_t agent, const Access& access) {
  if (access.kind != Access::Kind::write) check_read(agent, access.from, access.content);
  if (access.kind == Access::Kind::read || access.to.bytes == 0) return;
  // Without an agent it is the caller, whose rank is the one it writes to.
  const int32_t rank = agent >= 0 ? agents_[static_cast<size_t>(agent)].rank : access.to.rank.value;
  const int32_t call = ranks_[static_cast<size_t>(rank)].call;
  MemoryRange to = access.to;
  if (agent >= 0 && !options_->faults.empty() &&
      planted(SimFault::wrong_slot, agent, agents_[static_cast<size_t>(agent)].worked, -1) != nullptr) {
    to.offset_bytes += to.bytes;
  }
  if (agent >= 0 && !topology_.same_node(Rank{rank}, to.rank)) {
    add_violation(ViolationKind::bad_command, rank, agent,
                  fmt::format("stores into rank {}, which is on another node", to.rank.value));
    return;
  }
  Place place;
  if (!locate(to, call, agent, place)) return;
  land_segment(place,
               {.begin = place.begin,
                .end = place.end,
                .origin = place.begin - access.content.offset_bytes,
                .content = content_key(access.content, call),
                .writer = rank},
               call, agent);
}

void World::land_segment(const Place& place, Segment what, int32_t call, int32_t agent) {
  const RankState& owner = ranks_[static_cast<size_t>(place.rank)];
  if (place.area != 2 && owner.done_call >= call) {
    add_violation(ViolationKind::done_too_early, place.rank, agent,
                  fmt::format("data of call {} lands at bytes {}..{} after the rank said done", program_->epoch(call),
                              what.begin, what.end),
                  -1, what.begin, what.end);
  }
  memory(place).write(what);
}

void World::make_tile(int32_t agent, int64_t tile) {
  const AgentState& s = agents_[static_cast<size_t>(agent)];
  const int32_t call = ranks_[static_cast<size_t>(s.rank)].call;
  const int64_t tiles = program_->calls[static_cast<size_t>(call)].tiles(Rank{s.rank});
  if (tile >= tiles) {
    add_violation(ViolationKind::tile_unknown, s.rank, agent, fmt::format("makes tile {} of {}", tile, tiles));
    return;
  }
  uint64_t& bits = tiles_[static_cast<size_t>(s.rank)][static_cast<size_t>(tile / 64)];
  const uint64_t bit = uint64_t{1} << (tile % 64);
  if ((bits & bit) != 0) {
    add_violation(ViolationKind::tile_twice, s.rank, agent, fmt::format("makes tile {} again", tile));
  }
  bits |= bit;
}

void World::check_tiles(int32_t rank) {
  if (!options_->checks_memory) return;
  const int32_t call = ranks_[static_cast<size_t>(rank)].call;
  const int64_t tiles = program_->calls[static_cast<size_t>(call)].tiles(Rank{rank});
  for (int64_t t = 0; t < tiles; ++t) {
    if ((tiles_[static_cast<size_t>(rank)][static_cast<size_t>(t / 64)] >> (t % 64) & 1) != 0) continue;
    add_violation(ViolationKind::tile_missing, rank, -1, fmt::format("tile {} of {} was not made", t, tiles));
    return;
  }
}

}  // namespace tilewire

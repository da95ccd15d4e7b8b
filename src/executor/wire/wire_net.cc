#include "executor/wire/wire_net.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <tilewire/error.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/log.h"
#include "memory/cuda/cuda_device.h"
#include "memory/cuda/cuda_space.h"
#include "memory/cuda/pinned_memory.h"

namespace tilewire {
namespace {

constexpr int32_t kMostRanks = RollCallPage::kMostParticipants - 1;  // the wire is one more
constexpr uint32_t kMostEntries = 1u << 20;
constexpr const char* kWhere = "wire";

[[noreturn]] void refuse(const std::string& what, const std::string& values, const char* limit = "") {
  throw Error(ErrorKind::mismatch, {.what = what, .where = kWhere, .values = values, .limit = limit});
}

std::string range_text(ArenaRange range) { return fmt::format("range [{}, +{})", range.begin_bytes, range.bytes); }

}  // namespace

struct WireNet::Member {
  CudaSpace arena;
  PinnedMemory ring;
  uint32_t ring_entries;
  std::vector<ArenaRange> mapped;
  std::vector<Piece> pieces;  // that wait for the last one
};

WireNet::WireNet(const WireTools& tools, const WireJoin& first)
    : tools_(tools), job_(first.job), arena_bytes_(first.arena_bytes) {
  if (first.ranks < 1 || first.ranks > kMostRanks) {
    refuse("a communicator has too many ranks for one GPU", fmt::format("{} ranks", first.ranks), "at most 127");
  }
  const int64_t page = tools_.device->page_bytes();
  if (arena_bytes_ <= 0 || arena_bytes_ % page != 0) {
    refuse("the size of an arena is none", fmt::format("{} bytes", arena_bytes_), "must be whole pages of the GPU");
  }
  members_.resize(static_cast<size_t>(first.ranks));
}

// Everything it uses lies before it in the object.
WireNet::~WireNet() {
  try {
    if (engine_ && is_running_) engine_->stop();
  } catch (const std::exception& error) {
    log_error("{}", error.what());
    static_cast<void>(engine_.release());
    for (auto& member : members_) static_cast<void>(member.release());
  }
  engine_.reset();
}

WirePlace WireNet::place() const {
  return {.gpu = tools_.device->id(), .ctas = wire_ctas(static_cast<int32_t>(members_.size()))};
}

void WireNet::add(const WireJoin& join, const UniqueFd& ring) {
  if (join.rank.value < 0 || join.ranks != std::ssize(members_) || join.rank.value >= join.ranks ||
      join.arena_bytes != arena_bytes_) {
    refuse("a rank does not fit to those that are here",
           fmt::format("rank {} of {}, arena of {} bytes", join.rank.value, join.ranks, join.arena_bytes));
  }
  std::unique_ptr<Member>& place = members_[static_cast<size_t>(join.rank.value)];
  if (place) refuse("a rank is here already", fmt::format("rank {}", join.rank.value));
  if (!std::has_single_bit(join.ring_entries) || join.ring_entries > kMostEntries) {
    refuse("a wire ring has no size that can be", fmt::format("{} entries", join.ring_entries), "a power of two");
  }
  const auto bytes = static_cast<int64_t>(WireRing::bytes(join.ring_entries));
  struct stat info {};
  if (fstat(ring.get(), &info) != 0 || info.st_size < bytes) {
    refuse("what a rank sent is no wire ring", fmt::format("rank {}, {} bytes", join.rank.value, info.st_size));
  }
  const std::string what = fmt::format("arena of rank {}", join.rank.value);
  place = std::unique_ptr<Member>(
      new Member{.arena = CudaSpace(tools_.device, arena_bytes_, kWhere, what),
                 .ring = PinnedMemory::share(tools_.device, ring.get(), bytes, kWhere,
                                             fmt::format("wire ring of rank {}", join.rank.value)),
                 .ring_entries = join.ring_entries,
                 .mapped = {},
                 .pieces = {}});
}

WireNet::Member& WireNet::member(Rank rank) const { return *members_[static_cast<size_t>(rank.value)]; }

void WireNet::check_piece(const Member& m, ArenaRange range) const {
  const int64_t page = tools_.device->page_bytes();
  const auto overlaps = [range](ArenaRange other) {
    return range.begin_bytes < other.begin_bytes + other.bytes && other.begin_bytes < range.begin_bytes + range.bytes;
  };
  if (range.begin_bytes < 0 || range.bytes <= 0 || range.begin_bytes > arena_bytes_ ||
      range.bytes > arena_bytes_ - range.begin_bytes || range.begin_bytes % page != 0 || range.bytes % page != 0 ||
      m.arena.overlaps(range) ||
      std::any_of(m.pieces.begin(), m.pieces.end(), [&](const Piece& p) { return overlaps(p.range); })) {
    refuse("what a rank sent is no new piece of its arena", range_text(range));
  }
}

void WireNet::take(Rank rank, const WirePiece& piece, UniqueFd memory) {
  Member& m = member(rank);
  check_piece(m, piece.range);
  m.pieces.push_back({piece.range, std::move(memory)});
  if (!piece.is_last) return;
  const std::vector<Piece> pieces = std::exchange(m.pieces, {});
  if (is_running_) engine_->stop();
  const CudaContext current(*tools_.device, kWhere);
  for (const Piece& p : pieces) {
    m.arena.map_import(p.range, p.memory, rank);
    m.mapped.push_back(p.range);
  }
  if (is_running_) engine_->start();
}

void WireNet::start(const WireStart& start, const UniqueFd& page) {
  for (size_t r = 0; r < members_.size(); ++r) {
    if (!members_[r] || members_[r]->mapped.empty()) {
      refuse("a rank has not given its memory to the wire", fmt::format("rank {}", r));
    }
  }
  if (is_running_) refuse("the wire has been started already", "");
  if (start.expected > 0) hold_roll_call(start, page);
  const CudaContext current(*tools_.device, kWhere);
  engine_ = tools_.make_engine(memory());
  engine_->start();
  is_running_ = true;
}

void WireNet::hold_roll_call(const WireStart& start, const UniqueFd& page) const {
  if (start.participant < 0 || start.participant >= RollCallPage::kMostParticipants) {
    refuse("the wire has no place in the roll-call", fmt::format("participant {}", start.participant));
  }
  const CudaDevice& device = *tools_.device;
  const ArenaRange range{0, device.page_bytes()};
  CudaSpace space(tools_.device, range.bytes, kWhere, "page of the roll-call");
  space.map_import(range, page, Rank{0});
  const CudaContext current(device, kWhere);
  tools_.roll_call({.page = reinterpret_cast<RollCallPage*>(space.base()),
                    .participant = start.participant,
                    .ctas = place().ctas,
                    .expected = start.expected});
  RollCallPage seen;
  device.copy_to_host(&seen, std::bit_cast<CUdeviceptr>(space.base()), sizeof(seen), kWhere);
  if (seen.missed == 0 && seen.present >= static_cast<uint64_t>(start.expected)) return;
  throw Error(ErrorKind::unavailable, {.what = "not all CTAs came to the roll-call of the wire",
                                       .where = kWhere,
                                       .values = fmt::format("{} of {}", seen.present, start.expected)});
}

WireMemory WireNet::memory() const {
  WireMemory memory;
  for (const auto& m : members_) {
    memory.arenas.push_back(m->arena.base());
    memory.rings.push_back(WireRing::at(m->ring.host(), m->ring_entries));
    memory.rings_on_gpu.push_back(WireRing::at(m->ring.on_gpu(), m->ring_entries));
  }
  return memory;
}

}  // namespace tilewire

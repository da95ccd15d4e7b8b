// The emulated wire: one CTA for each rank's ring, which moves what the ring says until it is told to stop and the ring
// is empty. It goes on where it left.
//
//   fetcher     a warp: entries from the ring, many at a time, since each look at host memory takes a while
//   copiers     a thread each: pieces of data, dealt out in turn, through shared memory by the copy engine. Many are under
//               way, for beside ranks that compute a copy takes long
//   publisher   a thread: values, in the order of the ring, when all data before them is where it belongs
//   teller      a thread: tells the host what has landed
#pragma once

#include "device/ptx/cluster.cuh"
#include "device/ptx/mbarrier.cuh"
#include "device/ptx/tma.cuh"
#include "device/sync/wait.cuh"
#include "device/wire/wire.cuh"
#include "device/wire/wire_inbox.cuh"

namespace tilewire {

struct WireParameters {
  std::byte* const* arenas;  // by rank, in device memory
  const WireRing* rings;     // by rank, in device memory
  int32_t ranks;
};

constexpr uint32_t kWirePieceBytes = 16384;
constexpr int kWireThreads = 32 * (static_cast<int>(WireInbox::kCopiers) + 3);
constexpr int kWireBarrierOffset = static_cast<int>(WireInbox::kCopiers * kWirePieceBytes);
constexpr int kWireInboxOffset = kWireBarrierOffset + 8 * static_cast<int>(WireInbox::kCopiers);
constexpr int kWireSharedBytes = kWireInboxOffset + static_cast<int>(sizeof(WireInbox::Memory));

// Looks at host memory are one load at a time: several that are under way to the same words of it hold up a part of the
// cache, and with it whatever else the GPU does (docs/decisions/0120).
constexpr uint32_t kFetchPauseNs = 1000;
constexpr uint32_t kWireEntryWords = sizeof(WireEntry) / sizeof(uint64_t);
constexpr uint32_t kFetchEntries = 32 / kWireEntryWords;
constexpr uint32_t kPublishPauseNs = 50, kTellPauseNs = 250;

TILEWIRE_DEVICE uint32_t pieces_of(const WireMove& move) {
  const uint64_t bytes = move.is_value ? 0 : uint64_t{move.units} * kWireUnitBytes;
  return static_cast<uint32_t>((bytes + kWirePieceBytes - 1) / kWirePieceBytes);
}

// By a whole warp, a lane a word. How many of the next entries are there and have been put into the inbox. Of an entry that
// is there all words say so, whichever is seen first. `is_busy`: there were some the last time.
TILEWIRE_DEVICE uint32_t fetch_next(const WireRing& ring, const WireInbox& inbox, uint64_t fetched, bool is_busy) {
  const uint32_t lane = threadIdx.x % 32, ahead = lane / kWireEntryWords, word = lane % kWireEntryWords;
  const uint32_t room = inbox.room(fetched), wanted = is_busy ? kFetchEntries : 1;
  const uint64_t number = fetched + ahead;
  uint64_t seen = 0;
  bool is_there = false;
  if (ahead < room && ahead < wanted) {
    seen = ptx::load_acquire_sys(&ring.entry(number).words[word]);
    is_there = ((seen ^ ring.lap_bit(number)) & kLapBit) == 0;
  }
  const uint32_t missing = ~__ballot_sync(0xffffffff, is_there);
  const uint32_t count =
      (missing == 0 ? 32 : static_cast<uint32_t>(__ffs(static_cast<int32_t>(missing)) - 1)) / kWireEntryWords;
  if (ahead < count) inbox.put(number, word, seen);
  __syncwarp();
  return count;
}

// By a whole warp, until the wire is stopped and nothing is left.
TILEWIRE_DEVICE void fetch_entries(const WireRing& ring, const WireInbox& inbox, uint64_t fetched) {
  constexpr uint32_t kPollsPerLook = 8;
  bool is_busy = false;
  for (uint32_t polls = 1;; ++polls) {
    const uint32_t count = fetch_next(ring, inbox, fetched, is_busy);
    fetched += count;
    if (threadIdx.x % 32 == 0 && count > 0) inbox.set_fetched(fetched);
    is_busy = count > 0;
    if (is_busy) continue;
    if (polls % kPollsPerLook == 0 && __any_sync(0xffffffff, ptx::load_relaxed_sys(&ring.header->stop) != 0)) break;
    __nanosleep(kFetchPauseNs);
  }
  if (threadIdx.x % 32 == 0) inbox.end();
}

// One thread's place to copy pieces through.
class PieceCopier {
 public:
  TILEWIRE_DEVICE PieceCopier(uint32_t memory, uint32_t copier)
      : stage_(memory + copier * kWirePieceBytes), full_(memory + kWireBarrierOffset + 8 * copier) {}

  // By one thread, before a barrier of all.
  TILEWIRE_DEVICE void init() const {
    ptx::mbarrier_init(full_, 1);
    ptx::fence_mbarrier_init();
  }
  // Returns when the piece is where it belongs.
  TILEWIRE_DEVICE void copy(const std::byte* from, std::byte* to, uint32_t bytes) {
    ptx::mbarrier_arrive_expect(full_, bytes);
    ptx::fence_async_global();
    ptx::bulk_load(stage_, from, bytes, full_);
    while (!ptx::mbarrier_try_wait(full_, parity_)) {
    }
    parity_ ^= 1;
    ptx::bulk_store(to, stage_, bytes);
    ptx::bulk_commit();
    ptx::bulk_wait<0>();
  }

 private:
  uint32_t stage_, full_;
  uint32_t parity_ = 0;
};

// By one thread: of all pieces in the order of the ring every kCopiers-th one.
TILEWIRE_DEVICE void copy_pieces(const WireParameters& p, int32_t rank, const WireInbox& inbox, PieceCopier copier,
                                 uint32_t me, uint64_t number) {
  uint32_t turns = me;  // pieces of others until the next own one
  for (; inbox.wait(number); ++number) {
    const WireMove move = inbox.get(number);
    const uint32_t pieces = pieces_of(move);
    for (; turns < pieces; turns += WireInbox::kCopiers) {
      const uint64_t at = uint64_t{turns} * kWirePieceBytes, left = uint64_t{move.units} * kWireUnitBytes - at;
      copier.copy(p.arenas[rank] + move.src_offset + at, p.arenas[move.peer.value] + move.dst_offset + at,
                  left < kWirePieceBytes ? static_cast<uint32_t>(left) : kWirePieceBytes);
      inbox.add_copied(number);
    }
    turns -= pieces;
    inbox.pass(me, number);
  }
}

// By one thread. One fence is for all that is there by then.
TILEWIRE_DEVICE void publish_values(const WireParameters& p, const WireInbox& inbox, uint64_t stored) {
  while (inbox.wait(stored)) {
    uint64_t end = stored;
    while (inbox.has(end) && inbox.is_copied(end, pieces_of(inbox.get(end)))) ++end;
    if (end == stored) {
      __nanosleep(kPublishPauseNs);
      continue;
    }
    ptx::fence_sys();
    for (; stored != end; ++stored) {
      const WireMove move = inbox.get(stored);
      inbox.clear_copied(stored);
      if (!move.is_value) continue;
      ptx::store_relaxed_sys(reinterpret_cast<uint64_t*>(p.arenas[move.peer.value] + move.dst_offset), move.value);
    }
    inbox.set_stored(stored);
  }
  inbox.set_over();
}

// By one thread, until all is stored. Of several moves at once while they follow each other closely, for each word costs
// a fence.
TILEWIRE_DEVICE void tell_landed(const WireRing& ring, const WireInbox& inbox, uint64_t told) {
  constexpr uint32_t kMovesPerWord = 8;
  constexpr uint64_t kPatienceNs = 3000;
  uint64_t begin_ns = ptx::global_timer_ns();
  for (;;) {
    const bool is_over = inbox.is_over();
    const uint32_t more = inbox.stored_behind(told);
    const bool is_due = more >= kMovesPerWord || is_over || ptx::global_timer_ns() - begin_ns > kPatienceNs;
    if (more > 0 && is_due) publish(&ring.header->landed, told += more);
    if (more == 0 || is_due) begin_ns = ptx::global_timer_ns();
    if (is_over) return;
    __nanosleep(kTellPauseNs);
  }
}

// CTAs come in pairs, as those of the computing kernels do: a lone one would leave an SM that no pair can have. The one
// without a ring stays as long as the others do.
__global__ void __launch_bounds__(kWireThreads, 1) wire_kernel(const __grid_constant__ WireParameters p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const auto rank = static_cast<int32_t>(blockIdx.x);
  if (rank >= p.ranks) {
    if (threadIdx.x > 0) return;
    while (ptx::load_relaxed_sys(&p.rings[0].header->stop) == 0) __nanosleep(10000);
    return;
  }
  const uint32_t warp = threadIdx.x / 32;
  const bool is_first = threadIdx.x % 32 == 0;
  const WireRing& ring = p.rings[rank];
  const uint64_t first = ring.header->landed;
  const WireInbox inbox(memory + kWireInboxOffset);
  const PieceCopier copier(ptx::shared_address(memory), warp);
  if (threadIdx.x == 0) inbox.init(first);
  if (warp < WireInbox::kCopiers && is_first) copier.init();
  __syncthreads();
  if (warp < WireInbox::kCopiers) {
    if (is_first) copy_pieces(p, rank, inbox, copier, warp, first);
  } else if (warp == WireInbox::kCopiers) {
    fetch_entries(ring, inbox, first);
  } else if (warp == WireInbox::kCopiers + 1) {
    if (is_first) publish_values(p, inbox, first);
  } else {
    if (is_first) tell_landed(ring, inbox, first);
  }
}

}  // namespace tilewire

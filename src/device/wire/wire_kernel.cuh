// The emulated wire: one CTA for each rank's ring, which moves what the ring says until it is told to stop and the ring
// is empty. It goes on where it left. One warp fetches entries, many at a time since each look at them takes a while;
// data goes through shared memory by the copy engine, one thread loading and one storing.
#pragma once

#include "device/comm/copy_ring.cuh"
#include "device/sync/wait.cuh"
#include "device/wire/wire.cuh"

namespace tilewire {

struct WireParameters {
  std::byte* const* arenas;  // by rank, in device memory
  const WireRing* rings;     // by rank, in device memory
  int32_t ranks;
};

// The entries that have been fetched and not yet been stored, in shared memory.
class WireInbox {
 public:
  static constexpr uint32_t kSlots = 64;
  static constexpr int32_t kSharedBytes = static_cast<int32_t>(kSlots * sizeof(WireEntry)) + 16;

  TILEWIRE_DEVICE explicit WireInbox(void* base) : inbox_(static_cast<volatile Memory*>(base)) {}
  TILEWIRE_DEVICE void init(uint64_t entries) const {
    inbox_->fetched = static_cast<uint32_t>(entries);
    inbox_->stored = static_cast<uint32_t>(entries);
    inbox_->has_ended = 0;
  }

  // The fetching warp, which is at entry `fetched`.
  TILEWIRE_DEVICE uint32_t room(uint64_t fetched) const {
    return kSlots - (static_cast<uint32_t>(fetched) - inbox_->stored);
  }
  TILEWIRE_DEVICE void put(uint64_t number, const WireEntry& entry) const {
    for (int32_t i = 0; i < 4; ++i) inbox_->entries[number % kSlots][i] = entry.words[i];
  }
  TILEWIRE_DEVICE void set_fetched(uint64_t entries) const {
    __threadfence_block();
    inbox_->fetched = static_cast<uint32_t>(entries);
  }
  TILEWIRE_DEVICE void end() const { inbox_->has_ended = 1; }
  TILEWIRE_DEVICE bool has_ended() const { return inbox_->has_ended != 0; }

  // The others. False: entry `number` will not come.
  TILEWIRE_DEVICE bool wait(uint64_t number) const {
    while (is_last(number)) {
      if (inbox_->has_ended != 0) return !is_last(number);
    }
    __threadfence_block();
    return true;
  }
  // None is known behind the first `number`.
  TILEWIRE_DEVICE bool is_last(uint64_t number) const { return inbox_->fetched == static_cast<uint32_t>(number); }
  TILEWIRE_DEVICE WireMove get(uint64_t number) const {
    WireEntry entry;
    for (int32_t i = 0; i < 4; ++i) entry.words[i] = inbox_->entries[number % kSlots][i];
    return unpack(entry);
  }
  TILEWIRE_DEVICE void set_stored(uint64_t entries) const { inbox_->stored = static_cast<uint32_t>(entries); }

 private:
  struct Memory {
    uint64_t entries[kSlots][4];
    uint32_t fetched, stored, has_ended;
  };
  volatile Memory* inbox_;
};

// Looks at host memory slow whatever the GPU does meanwhile: all lanes of four rings without a pause cost a GEMM beside
// them 8 %. So one lane looks until something is there, and not often.
constexpr uint32_t kFetchPauseNs = 2000;
constexpr uint32_t kFetchLanes = 8;

TILEWIRE_DEVICE WireEntry look_at_entry(const WireEntry& entry) {
  WireEntry seen;
  seen.words[3] = ptx::load_acquire_sys(&entry.words[3]);  // it was written last
  for (int32_t i = 0; i < 3; ++i) seen.words[i] = ptx::load_relaxed_sys(&entry.words[i]);
  return seen;
}

// By a whole warp, a lane an entry. How many of the next ones are there and have been put into the inbox.
TILEWIRE_DEVICE uint32_t fetch_next(const WireRing& ring, const WireInbox& inbox, uint64_t fetched) {
  const uint32_t lane = threadIdx.x % 32;
  const uint64_t number = fetched + lane;
  WireEntry seen{};
  bool fits = false;
  const auto look = [&] {
    seen = look_at_entry(ring.entry(number));
    fits = lane < inbox.room(fetched) && is_there(seen, ring.lap_bit(number));
  };
  if (lane == 0) look();
  if (!__any_sync(0xffffffff, fits)) return 0;
  if (lane > 0 && lane < kFetchLanes) look();
  const auto count = static_cast<uint32_t>(__ffs(static_cast<int32_t>(~__ballot_sync(0xffffffff, fits))) - 1);
  if (lane < count) inbox.put(number, seen);
  __syncwarp();
  return count;
}

// By a whole warp, until the wire is stopped and nothing is left.
TILEWIRE_DEVICE void fetch_entries(const WireRing& ring, const WireInbox& inbox) {
  constexpr uint32_t kPollsPerLook = 8;
  uint64_t fetched = ring.header->landed;
  for (uint32_t polls = 1;; ++polls) {
    const uint32_t count = fetch_next(ring, inbox, fetched);
    fetched += count;
    if (threadIdx.x % 32 == 0 && count > 0) inbox.set_fetched(fetched);
    if (count > 0) continue;
    if (polls % kPollsPerLook == 0 && __any_sync(0xffffffff, ptx::load_relaxed_sys(&ring.header->stop) != 0)) break;
    __nanosleep(kFetchPauseNs);
  }
  if (threadIdx.x % 32 == 0) inbox.end();
}

// The moves of a ring as a walk of the copy ring. `kStores`: the storing side, which also writes values and says what
// has landed.
template <bool kStores>
class WireWalk {
 public:
  TILEWIRE_DEVICE WireWalk(const WireParameters& p, int32_t rank, const WireInbox& inbox)
      : p_(p),
        inbox_(inbox),
        landed_(&p.rings[rank].header->landed),
        own_(p.arenas[rank]),
        read_(*landed_),
        told_(read_) {}

  TILEWIRE_DEVICE bool next(CopyPiece& piece) {
    while (left_bytes_ == 0) {
      if (kStores && told_ != read_) await_more();
      if (!inbox_.wait(read_)) return false;
      begin_move();
    }
    const uint32_t bytes =
        static_cast<uint32_t>(left_bytes_ < CopyRing::kPieceBytes ? left_bytes_ : CopyRing::kPieceBytes);
    left_bytes_ -= bytes;
    piece = {own_ + move_.src_offset + done_bytes_, p_.arenas[move_.peer.value] + move_.dst_offset + done_bytes_, bytes,
             left_bytes_ == 0};
    done_bytes_ += bytes;
    return true;
  }
  TILEWIRE_DEVICE void finish() {
    inbox_.set_stored(read_);
    if (read_ - told_ >= kMovesPerWord) tell_landed();
  }

 private:
  // The host is told of several moves at once while they follow each other closely: each word costs a fence.
  static constexpr uint32_t kMovesPerWord = 8;
  static constexpr uint64_t kPatienceNs = 3000;

  TILEWIRE_DEVICE void tell_landed() {
    publish(landed_, read_);
    told_ = read_;
  }
  TILEWIRE_DEVICE void await_more() {
    const uint64_t begin_ns = ptx::global_timer_ns();
    while (inbox_.is_last(read_)) {
      if (!inbox_.has_ended() && ptx::global_timer_ns() - begin_ns < kPatienceNs) continue;
      tell_landed();
      return;
    }
  }

  TILEWIRE_DEVICE void begin_move() {
    move_ = inbox_.get(read_++);
    left_bytes_ = move_.is_value ? 0 : int64_t{move_.units} * kWireUnitBytes;
    done_bytes_ = 0;
    if constexpr (kStores) {
      if (move_.is_value) {
        publish(reinterpret_cast<uint64_t*>(p_.arenas[move_.peer.value] + move_.dst_offset), move_.value);
      }
      if (left_bytes_ == 0) finish();
    } else {
      ptx::fence_async_global();
    }
  }

  const WireParameters& p_;
  const WireInbox& inbox_;
  uint64_t* landed_;
  std::byte* own_;
  WireMove move_;
  uint64_t read_;
  uint64_t told_;  // moves that the host knows of
  int64_t left_bytes_ = 0, done_bytes_ = 0;
};

constexpr int kWireThreads = 96;
constexpr int kWireSharedBytes = CopyRing::kSharedBytes + WireInbox::kSharedBytes;

// CTAs come in pairs, as those of the computing kernels do: a lone one would leave an SM that no pair can have. The one
// without a ring stays as long as the others do.
__global__ void __launch_bounds__(kWireThreads, 1) wire_kernel(const __grid_constant__ WireParameters p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const auto rank = static_cast<int32_t>(blockIdx.x);
  if (rank >= p.ranks) {
    while (ptx::load_relaxed_sys(&p.rings[0].header->stop) == 0) __nanosleep(10000);
    return;
  }
  const CopyRing ring(memory);
  const WireInbox inbox(memory + CopyRing::kSharedBytes);
  if (threadIdx.x == 0) {
    ring.init();
    inbox.init(p.rings[rank].header->landed);
  }
  __syncthreads();
  if (threadIdx.x == 0) ring.load(WireWalk<false>(p, rank, inbox));
  if (threadIdx.x == 32) ring.store(WireWalk<true>(p, rank, inbox));
  if (threadIdx.x / 32 == 2) fetch_entries(p.rings[rank], inbox);
}

}  // namespace tilewire

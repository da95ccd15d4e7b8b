// The emulated wire: one CTA for each rank's ring, which moves what the ring says until it is told to stop and the ring
// is empty. It goes on where it left.
// Data of a ring goes through shared memory by the copy engine, one thread loading and one storing; both look at the
// entries for themselves.
#pragma once

#include "device/comm/copy_ring.cuh"
#include "device/sync/wait.cuh"
#include "device/wire/wire.cuh"

namespace tilewire {

struct WireParameters {
  std::byte* const* arenas;  // by rank, in device memory
  const WireRing* rings;     // by rank, in device memory
};

// How many entries the loading thread has seen, and whether it has left: two words in shared memory.
class WireProgress {
 public:
  static constexpr int32_t kSharedBytes = 16;

  TILEWIRE_DEVICE explicit WireProgress(uint32_t address) : address_(address) {}
  TILEWIRE_DEVICE void init(uint64_t entries) const {
    set_seen(entries);
    ptx::store_shared(address_ + 4, 0);
  }
  TILEWIRE_DEVICE void set_seen(uint64_t entries) const { ptx::store_shared(address_, static_cast<uint32_t>(entries)); }
  TILEWIRE_DEVICE void leave() const { ptx::store_shared(address_ + 4, 1); }
  // False: entry number `read` will not come, the loading thread has left before it.
  TILEWIRE_DEVICE bool wait_seen(uint64_t read) const {
    while (ptx::load_shared(address_) == static_cast<uint32_t>(read)) {
      if (ptx::load_shared(address_ + 4) != 0) return ptx::load_shared(address_) != static_cast<uint32_t>(read);
    }
    return true;
  }

 private:
  uint32_t address_;
};

// The entries of a ring in order, by one thread. The loading one waits for each entry and looks whether it is told to
// stop; the storing one follows it, so that both leave behind the same entry.
template <bool kStores>
class WireReader {
 public:
  TILEWIRE_DEVICE WireReader(const WireRing& ring, WireProgress progress)
      : ring_(ring), progress_(progress), read_(ring.header->landed) {}

  // False: told to stop.
  TILEWIRE_DEVICE bool next(WireMove& move) {
    WireEntry seen;
    if constexpr (kStores) {
      if (!progress_.wait_seen(read_)) return false;
      load(seen);
    } else {
      load(seen);
      for (uint32_t polls = 1; !is_there(seen, ring_.lap_bit(read_)); ++polls) {
        if (polls % kPollsPerLook == 0 && ptx::load_relaxed_sys(&ring_.header->stop) != 0) {
          progress_.leave();
          return false;
        }
        load(seen);
      }
      progress_.set_seen(read_ + 1);
    }
    move = unpack(seen);
    ++read_;
    return true;
  }
  TILEWIRE_DEVICE uint64_t read() const { return read_; }

 private:
  static constexpr uint32_t kPollsPerLook = 64;

  TILEWIRE_DEVICE void load(WireEntry& seen) const {
    const WireEntry& entry = ring_.entry(read_);
    seen.words[3] = ptx::load_acquire_sys(&entry.words[3]);  // it was written last
    for (int32_t i = 0; i < 3; ++i) seen.words[i] = ptx::load_relaxed_sys(&entry.words[i]);
  }

  const WireRing& ring_;
  WireProgress progress_;
  uint64_t read_;
};

// The moves of a ring as a walk of the copy ring. `kStores`: the storing side, which also writes values and says what
// has landed.
template <bool kStores>
class WireWalk {
 public:
  TILEWIRE_DEVICE WireWalk(const WireParameters& p, int32_t rank, WireProgress progress)
      : p_(p), reader_(p.rings[rank], progress), landed_(&p.rings[rank].header->landed), own_(p.arenas[rank]) {}

  TILEWIRE_DEVICE bool next(CopyPiece& piece) {
    while (left_bytes_ == 0) {
      if (!reader_.next(move_)) return false;
      if constexpr (!kStores) ptx::fence_async_global();
      if (kStores && move_.is_value) {
        publish(reinterpret_cast<uint64_t*>(p_.arenas[move_.peer.value] + move_.dst_offset), move_.value);
      }
      left_bytes_ = move_.is_value ? 0 : int64_t{move_.units} * kWireUnitBytes;
      done_bytes_ = 0;
      if (kStores && left_bytes_ == 0) finish();
    }
    const uint32_t bytes =
        static_cast<uint32_t>(left_bytes_ < CopyRing::kPieceBytes ? left_bytes_ : CopyRing::kPieceBytes);
    left_bytes_ -= bytes;
    piece = {own_ + move_.src_offset + done_bytes_, p_.arenas[move_.peer.value] + move_.dst_offset + done_bytes_, bytes,
             left_bytes_ == 0};
    done_bytes_ += bytes;
    return true;
  }
  TILEWIRE_DEVICE void finish() const { publish(landed_, reader_.read()); }

 private:
  const WireParameters& p_;
  WireReader<kStores> reader_;
  uint64_t* landed_;
  std::byte* own_;
  WireMove move_;
  int64_t left_bytes_ = 0, done_bytes_ = 0;
};

constexpr int kWireThreads = 64;
constexpr int kWireSharedBytes = CopyRing::kSharedBytes + WireProgress::kSharedBytes;

__global__ void __launch_bounds__(kWireThreads, 1) wire_kernel(const __grid_constant__ WireParameters p) {
  extern __shared__ __align__(1024) uint8_t memory[];
  const CopyRing ring(memory);
  const WireProgress progress(ptx::shared_address(memory) + CopyRing::kSharedBytes);
  const auto rank = static_cast<int32_t>(blockIdx.x);
  if (threadIdx.x == 0) {
    ring.init();
    progress.init(p.rings[rank].header->landed);
  }
  __syncthreads();
  if (threadIdx.x == 0) ring.load(WireWalk<false>(p, rank, progress));
  if (threadIdx.x == 32) ring.store(WireWalk<true>(p, rank, progress));
}

}  // namespace tilewire

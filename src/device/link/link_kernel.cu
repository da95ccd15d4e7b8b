#include "device/comm/call_setup.cuh"
#include "device/comm/call_warp.cuh"
#include "device/cuda_check.cuh"
#include "device/cuda_stream.cuh"
#include "device/link/link_series.h"

#include <memory>

namespace tilewire {
namespace {

constexpr int32_t kThreads = 256;
constexpr int32_t kCtas = 2;  // one that sends or reads, one that relays
constexpr uint64_t kMostTrips = 1 << 14;
constexpr int32_t kFilledAtOnce = 8;  // chunks

// In pinned host memory, written once by a kernel that has done all it should.
struct LinkFindings {
  uint64_t ns = 0;
  uint64_t wrong = 0;
  uint64_t epoch = 0;  // its last one
};

struct LinkParameters {
  CallFrame frame;
  CallView call;
  LinkSeries series;
  LinkFindings* findings = nullptr;
  uint64_t* trip_ns = nullptr;  // [kMostTrips]
};

// The part of one rank, by all threads of a CTA: the first one waits and posts, all make or read contents.
class LinkPart {
 public:
  TILEWIRE_DEVICE LinkPart(const LinkParameters& p, int32_t role)
      : p_(p), role_(role), first_(p.call.state->epoch + 1) {}

  TILEWIRE_DEVICE void run() {
    const uint64_t begin_ns = ptx::global_timer_ns();
    __syncthreads();  // all have read the epoch
    for (uint64_t i = 0; i < p_.series.epochs; ++i) {
      const CallSpace space(p_.frame, p_.call);
      if (!run_epoch(space)) return;
      if (i + 1 == p_.series.epochs && !end_series(space, begin_ns)) return;
      if (is_first()) p_.call.state->epoch = space.epoch();
      __syncthreads();
    }
    if (is_first()) *p_.findings = {ns_, wrong_, first_ + p_.series.epochs - 1};
  }

 private:
  TILEWIRE_DEVICE static bool is_first() { return threadIdx.x == 0; }
  // Whether the first thread has all that it waited for; what it acquired all may read.
  TILEWIRE_DEVICE static bool all_go_on(const Waiter& waiter, bool is_well = true) {
    return __syncthreads_or(waiter.has_given_up() || !is_well) == 0;
  }
  // That of the proxy lies in host memory: looks go over PCI.
  TILEWIRE_DEVICE bool wait_sent(const CallSpace& space, Epoch least) const {
    Waiter waiter(space.view().limits, role_, space.epoch(), kRankPauseNs);
    return waiter.wait(space.word(space.frame().me, FlagLayout::sent()), FlagLayout::sent(), least);
  }
  TILEWIRE_DEVICE static void wait_word(const CallSpace& space, Waiter& waiter, uint32_t word, Epoch least) {
    waiter.wait(space.word(space.frame().me, word), word, least);
  }
  TILEWIRE_DEVICE uint64_t* chunk(const CallSpace& space, int32_t c) const {
    return reinterpret_cast<uint64_t*>(space.half(space.frame().me) + c * p_.series.chunk_bytes);
  }
  TILEWIRE_DEVICE int64_t words_of_chunk() const { return p_.series.chunk_bytes / int64_t{sizeof(uint64_t)}; }

  TILEWIRE_DEVICE bool run_epoch(const CallSpace& space) {
    Waiter waiter(space.view().limits, role_, space.epoch());
    CommandPoster ring(space, Ring::send);
    const Rank me = space.frame().me;
    const bool has_chunks = p_.series.chunks > 0;
    if (me == p_.series.from && !(has_chunks ? send(space, waiter, ring) : make_trip(space, waiter, ring)))
      return false;
    if (me == p_.series.to) {
      if (!receive(space, waiter)) return false;
      if (is_first()) ring.post(waiter, link_signal(space.frame(), p_.series.from));
    }
    if (is_first()) end_rings(space, waiter, ring);
    return all_go_on(waiter);
  }

  // There are two halves, so a sender may be two epochs ahead of what was looked at.
  TILEWIRE_DEVICE bool send(const CallSpace& space, Waiter& waiter, CommandPoster& ring) {
    const Epoch e = space.epoch();
    if (is_first() && e >= first_ + 2) wait_word(space, waiter, link_word(space.frame(), p_.series.to, 0), e - 2);
    const bool has_landed = !is_first() || e <= 2 || wait_sent(space, e - 2);
    if (!all_go_on(waiter, has_landed)) return false;
    for (int32_t c = 0; c < p_.series.chunks; c += kFilledAtOnce) {
      const int32_t end = c + kFilledAtOnce < p_.series.chunks ? c + kFilledAtOnce : p_.series.chunks;
      if (p_.series.seed != 0) fill(space, c, end);
      __syncthreads();
      for (int32_t i = c; is_first() && i < end; ++i) ring.post(waiter, link_write(space.frame(), p_.series, i));
    }
    return all_go_on(waiter);
  }
  TILEWIRE_DEVICE void fill(const CallSpace& space, int32_t begin, int32_t end) const {
    for (int32_t c = begin; c < end; ++c) {
      for (int64_t i = threadIdx.x; i < words_of_chunk(); i += kThreads) {
        chunk(space, c)[i] = link_content(p_.series.seed, space.epoch(), c, i);
      }
    }
  }

  // Each chunk is looked at as soon as its word is there.
  TILEWIRE_DEVICE bool receive(const CallSpace& space, Waiter& waiter) {
    const int32_t words = p_.series.chunks > 0 ? p_.series.chunks : 1;
    for (int32_t c = 0; c < words; ++c) {
      if (is_first()) wait_word(space, waiter, link_word(space.frame(), p_.series.from, c), space.epoch());
      if (!all_go_on(waiter)) return false;
      if (p_.series.seed == 0) continue;
      bool is_whole = true;
      for (int64_t i = threadIdx.x; i < words_of_chunk(); i += kThreads) {
        is_whole = is_whole && chunk(space, c)[i] == link_content(p_.series.seed, space.epoch(), c, i);
      }
      if (__syncthreads_or(!is_whole) != 0 && is_first()) ++wrong_;
    }
    return true;
  }

  TILEWIRE_DEVICE bool make_trip(const CallSpace& space, Waiter& waiter, CommandPoster& ring) {
    if (is_first()) {
      const uint64_t begin_ns = ptx::global_timer_ns();
      ring.post(waiter, link_signal(space.frame(), p_.series.to));
      wait_word(space, waiter, link_word(space.frame(), p_.series.to, 0), space.epoch());
      const uint64_t trip = space.epoch() - first_;
      if (trip < kMostTrips) p_.trip_ns[trip] = ptx::global_timer_ns() - begin_ns;
    }
    return all_go_on(waiter);
  }

  TILEWIRE_DEVICE static void end_rings(const CallSpace& space, Waiter& waiter, CommandPoster& send_ring) {
    const Command end{.kind = CommandKind::call_end};
    for (int32_t r = 0; r < kRings; ++r) {
      if (Ring{r} == Ring::send) {
        send_ring.post(waiter, end);
      } else {
        CommandPoster(space, Ring{r}).post(waiter, end);
      }
    }
  }

  TILEWIRE_DEVICE bool end_series(const CallSpace& space, uint64_t begin_ns) {
    Waiter waiter(space.view().limits, role_, space.epoch());
    const bool is_sender = space.frame().me == p_.series.from;
    if (is_first() && is_sender) {
      wait_word(space, waiter, link_word(space.frame(), p_.series.to, 0), space.epoch());
      ns_ = ptx::global_timer_ns() - begin_ns;
    }
    return all_go_on(waiter, !is_first() || wait_sent(space, space.epoch()));
  }

  const LinkParameters& p_;
  int32_t role_;
  Epoch first_;
  uint64_t ns_ = 0;  // of the first thread, as the next
  uint64_t wrong_ = 0;
};

// Arrivals of one epoch after the other, until the last one has ended.
TILEWIRE_DEVICE void relay_series(const LinkParameters& p, Epoch last) {
  for (;;) {
    const CallSpace space(p.frame, p.call);
    run_relay(space);
    if (ptx::load_acquire_sys(&p.call.state->epoch) >= last || space.is_aborted()) return;
  }
}

__global__ void __launch_bounds__(kThreads, 1) link_kernel(const __grid_constant__ LinkParameters p, Epoch last) {
  if (blockIdx.x == 1) {
    if (threadIdx.x < 32) relay_series(p, last);
    return;
  }
  const Rank me = p.frame.me;
  LinkPart(p, me == p.series.from ? 0 : me == p.series.to ? 1 : 2).run();
}

// Of one rank, for all of its series.
class LinkLaunches {
 public:
  LinkLaunches(const DeviceRank& rank, const CallFrame& frame) {
    parameters_.frame = frame;
    place_call(tables_, rank, kCtas, parameters_.frame, parameters_.call);
    tables_.place_zeroed(parameters_.trip_ns, kMostTrips);
    tables_.upload();
    name_call(parameters_.call, 0, rank);
    check_cuda(cudaHostAlloc(&findings_, sizeof(LinkFindings), cudaHostAllocMapped), "allocating what is found");
    check_cuda(cudaHostGetDevicePointer(&parameters_.findings, findings_, 0), "mapping what is found");
    DeviceRankState state;
    check_cuda(cudaMemcpy(&state, rank.state, sizeof(state), cudaMemcpyDeviceToHost), "asking for the epoch");
    epoch_ = state.epoch;
  }
  ~LinkLaunches() { cudaFreeHost(findings_); }
  LinkLaunches(const LinkLaunches&) = delete;
  LinkLaunches& operator=(const LinkLaunches&) = delete;

  LinkOutcome run(const LinkSeries& series) {
    parameters_.series = series;
    epoch_ += series.epochs;
    *findings_ = {};
    link_kernel<<<kCtas, kThreads, 0, stream_.get()>>>(parameters_, epoch_);
    check_cuda(cudaGetLastError(), "launching the link test");
    check_cuda(cudaStreamSynchronize(stream_.get()), "running the link test");  // its waits have deadlines
    LinkOutcome outcome{.ns = findings_->ns, .wrong = findings_->wrong, .has_given_up = findings_->epoch != epoch_};
    if (series.chunks == 0 && parameters_.frame.me == series.from) outcome.trip_ns = trips(series.epochs);
    return outcome;
  }

 private:
  std::vector<uint64_t> trips(uint64_t count) const {
    std::vector<uint64_t> trips(count < kMostTrips ? count : kMostTrips);
    check_cuda(cudaMemcpy(trips.data(), parameters_.trip_ns, trips.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost),
               "copying the times of trips");
    return trips;
  }

  LinkParameters parameters_;
  DeviceTables tables_;
  CudaStream stream_;
  LinkFindings* findings_ = nullptr;
  Epoch epoch_ = 0;
};

}  // namespace

LinkKernel make_link_kernel(const DeviceRank& rank, const CallFrame& frame) {
  const auto launches = std::make_shared<LinkLaunches>(rank, frame);
  return [launches](const LinkSeries& series) { return launches->run(series); };
}

}  // namespace tilewire

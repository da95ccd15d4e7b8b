#include "executor/gpu_rank.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "memory/cuda/cuda_arena.h"
#include "memory/cuda/cuda_device.h"
#include "memory/cuda/cuda_space.h"
#include "memory/cuda/pinned_memory.h"

namespace tilewire {
namespace {

class CudaRank final : public GpuRank {
 public:
  CudaRank(const GpuPlace& place, const CudaDriver& driver)
      : where_(fmt::format("rank {}", place.rank.value)),
        device_(std::make_shared<const CudaDevice>(ordinal_of(place, driver), driver)),
        sms_(place.sms > 0 ? static_cast<int32_t>(place.sms) : device_->sms()) {
    if (sms_ <= device_->sms()) return;
    throw Error(ErrorKind::invalid_argument, {.what = "the GPU has fewer SMs than this rank may take",
                                              .where = where_,
                                              .values = fmt::format("sms = {}", sms_),
                                              .limit = fmt::format("{} on device {}", device_->sms(), device()),
                                              .advice = "lower TILEWIRE_SMS, or leave it out for all of them"});
  }
  ~CudaRank() override { close(); }

  int32_t device() const override { return device_->ordinal(); }
  int32_t sms() const override { return sms_; }
  GpuId id() const override { return device_->id(); }
  std::string pci_address() const override { return device_->pci_address(); }
  int32_t gpu_sms() const override { return device_->sms(); }
  bool has_mps() const override { return device_->has_mps(); }

  std::unique_ptr<Arena> make_arena(const ArenaConfig& config) override {
    auto arena = std::make_unique<CudaArena>(device_, config);
    arena_ = arena.get();
    return arena;
  }

  void start(Epoch last) override {
    fault_ = PinnedMemory::make(device_, sizeof(FaultRecord), where_, "record of faults");
    remarks_ = PinnedMemory::make(device_, kRemarkKinds * sizeof(CallRemark), where_, "remarks of kernels");
    const CudaContext current(*device_, where_);
    check(device_->driver().memory_alloc(&state_, sizeof(DeviceRankState)), "cuMemAlloc", "make the state of a rank");
    DeviceRankState state;
    state.epoch = last;
    device_->copy_to_gpu(state_, &state, sizeof(state), where_);
    check(device_->driver().event_create(&last_call_, CU_EVENT_DISABLE_TIMING), "cuEventCreate", "make an event");
  }

  CommandRing make_ring(int32_t number, uint32_t entries) override {
    const auto memory = std::make_shared<PinnedMemory>(PinnedMemory::make(
        device_, static_cast<int64_t>(RingMemory::bytes(entries)), where_, fmt::format("ring {}", number)));
    rings_[number] = RingMemory::at(memory->on_gpu(), entries);
    return CommandRing(entries, std::shared_ptr<void>(memory, memory->host()));
  }

  UniqueFd make_roll_call_page() override {
    make_page_space();
    return page_->map_new(page_range());
  }
  void map_roll_call_page(const UniqueFd& fd, Rank owner) override {
    make_page_space();
    page_->map_import(page_range(), fd, owner);
  }
  RollCallPage hold_roll_call(const RollCallKernel& kernel, RollCallPart part) override {
    part.page = reinterpret_cast<RollCallPage*>(page_->base());
    try {
      with_context([&] { kernel(part); });
    } catch (...) {
      static_cast<void>(page_.release());  // a kernel may still be there that uses it
      throw;
    }
    RollCallPage seen;
    device_->copy_to_host(&seen, std::bit_cast<CUdeviceptr>(page_->base()), sizeof(seen), where_);
    page_.reset();
    return seen;
  }

  DeviceRank device_rank(uint64_t timeout_ns) const override {
    DeviceRank rank;
    std::copy(rings_, rings_ + kRings, rank.rings);
    rank.arrivals = rings_[kArrivalRing];
    const int32_t ranks = arena_->layout().flags.ranks;
    for (int32_t r = 0; r < ranks; ++r) rank.arenas.push_back(arena_->peer(Rank{r}));
    rank.state = std::bit_cast<DeviceRankState*>(state_);
    rank.fault = reinterpret_cast<FaultRecord*>(fault_.on_gpu());
    rank.remarks = reinterpret_cast<CallRemark*>(remarks_.on_gpu());
    rank.timeout_ns = timeout_ns;
    rank.control_page = arena_->control_on_gpu();
    rank.trace = &trace_;
    return rank;
  }

  void make_trace(int64_t events) override {
    if (notes_ != 0) return;
    room_.capacity = static_cast<uint32_t>(std::clamp<int64_t>(events / lanes(), 1, kMostNotesALane));
    const auto bytes = static_cast<size_t>(note_bytes() + count_bytes());
    const CudaContext current(*device_, where_);
    check(device_->driver().memory_alloc(&notes_, bytes), "cuMemAlloc", "make room for a timeline");
    room_.notes = std::bit_cast<TraceNote*>(notes_);
    room_.counts = std::bit_cast<uint32_t*>(notes_ + static_cast<CUdeviceptr>(note_bytes()));
    forget_notes();
  }
  void set_trace_on(bool is_on) override { trace_ = is_on ? room_ : TraceView{}; }
  NotedWorks take_notes() override {
    std::vector<TraceNote> all(static_cast<size_t>(lanes()) * room_.capacity);
    std::vector<uint32_t> counts(static_cast<size_t>(lanes()));
    device_->copy_to_host(all.data(), notes_, note_bytes(), where_);
    device_->copy_to_host(counts.data(), std::bit_cast<CUdeviceptr>(room_.counts), count_bytes(), where_);
    forget_notes();
    return noted_works(all, counts, room_.capacity);
  }

  const FaultRecord& fault() const override { return *reinterpret_cast<const FaultRecord*>(fault_.host()); }

  std::optional<CallRemark> take_remark() override {
    auto* remarks = reinterpret_cast<CallRemark*>(remarks_.host());
    CallRemark* first = nullptr;
    for (int32_t kind = 0; kind < kRemarkKinds; ++kind) {
      CallRemark& one = remarks[kind];
      if (std::atomic_ref(one.state).load(std::memory_order_acquire) != CallRemark::kComplete) continue;
      if (first == nullptr || one.epoch < first->epoch) first = &one;
    }
    if (first == nullptr) return std::nullopt;
    const std::atomic_ref state(first->state);
    uint64_t complete = CallRemark::kComplete;
    if (!state.compare_exchange_strong(complete, CallRemark::kTaken, std::memory_order_acquire)) return std::nullopt;
    const CallRemark taken = *first;
    state.store(CallRemark::kNone, std::memory_order_release);
    return taken;
  }

  bool has_given_up() const override {
    const std::shared_lock open(closing_);
    if (is_closed_) return false;
    uint64_t word = 0;
    device_->copy_to_host(&word, std::bit_cast<CUdeviceptr>(arena_->base() + ControlPage::kAbort), sizeof(word),
                          where_);
    return word != 0;
  }

  Epoch last_epoch() const override {
    DeviceRankState state;
    device_->copy_to_host(&state, state_, sizeof(state), where_);
    return state.epoch;
  }

  void with_context(const std::function<void()>& f) const override {
    const CudaContext current(*device_, where_);
    f();
  }
  bool is_capturing(void* stream) const override {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const CudaContext current(*device_, where_);
    check(device_->driver().stream_is_capturing(static_cast<CUstream>(stream), &status), "cuStreamIsCapturing",
          "ask whether the stream is captured");
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  }
  void before_launch(void* stream) override {
    if (!has_launched_ || stream == last_stream_) return;
    const CudaContext current(*device_, where_);
    check(device_->driver().stream_wait_event(static_cast<CUstream>(stream), last_call_, 0), "cuStreamWaitEvent",
          "put a call behind the one before");
  }
  void after_launch(void* stream) override {
    const CudaContext current(*device_, where_);
    check(device_->driver().event_record(last_call_, static_cast<CUstream>(stream)), "cuEventRecord",
          "mark the end of a call");
    has_launched_ = true;
    last_stream_ = stream;
  }
  bool is_idle() const override {
    const std::shared_lock open(closing_);
    if (is_closed_ || !has_launched_ || !device_->is_usable()) return true;
    const CudaContext current(*device_, where_);
    const CUresult result = device_->driver().event_query(last_call_);
    if (result == CUDA_ERROR_NOT_READY) return false;
    check(result, "cuEventQuery", "ask whether a call has ended");
    return true;
  }

  void close() noexcept override {
    const std::unique_lock closing(closing_);
    is_closed_ = true;
    if (device_->is_usable()) {
      const CudaContext current(*device_);
      if (last_call_ != nullptr) device_->driver().event_destroy(last_call_);
      if (state_ != 0) device_->driver().memory_free(state_);
      if (notes_ != 0) device_->driver().memory_free(notes_);
    }
    notes_ = 0;
    room_ = trace_ = {};
    page_.reset();
    last_call_ = nullptr;
    state_ = 0;
    has_launched_ = false;
  }

 private:
  void forget_notes() {
    const std::vector<uint32_t> none(static_cast<size_t>(lanes()), 0);
    device_->copy_to_gpu(std::bit_cast<CUdeviceptr>(room_.counts), none.data(), count_bytes(), where_);
  }
  static constexpr int64_t kMostNotesALane = 1 << 16;
  int64_t lanes() const { return int64_t{sms_} * kTracePlaces; }
  int64_t note_bytes() const { return lanes() * room_.capacity * static_cast<int64_t>(sizeof(TraceNote)); }
  int64_t count_bytes() const { return lanes() * static_cast<int64_t>(sizeof(uint32_t)); }

  static int ordinal_of(const GpuPlace& place, const CudaDriver& driver) {
    return place.device >= 0 ? static_cast<int>(place.device) : place.on_host % CudaDevice::count(driver);
  }
  ArenaRange page_range() const { return {0, device_->page_bytes()}; }
  void make_page_space() {
    page_ = std::make_unique<CudaSpace>(device_, page_range().bytes, where_, "page of the roll-call");
  }
  void check(CUresult result, const char* name, const char* purpose) const {
    if (result == CUDA_SUCCESS) return;  // no texts then
    device_->check(result, {.name = name, .purpose = purpose, .where = where_});
  }

  mutable std::shared_mutex closing_;  // held shared by those who may come from any thread
  bool is_closed_ = false;
  std::string where_;
  std::shared_ptr<const CudaDevice> device_;
  int32_t sms_;
  CudaArena* arena_ = nullptr;       // the session's
  std::unique_ptr<CudaSpace> page_;  // of the roll-call
  PinnedMemory fault_, remarks_;
  CUdeviceptr state_ = 0;
  RingMemory rings_[kRings + 1];  // as kernels reach them
  CUdeviceptr notes_ = 0;
  TraceView room_, trace_;  // what there is, and what kernels are told
  CUevent last_call_ = nullptr;
  std::atomic<bool> has_launched_{false};
  void* last_stream_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuRank> open_gpu_rank(const GpuPlace& place, const CudaDriver* driver) {
  return std::make_unique<CudaRank>(place, driver != nullptr ? *driver : cuda_driver());
}

}  // namespace tilewire

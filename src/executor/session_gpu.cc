// What is particular to a session of a GPU rank: the GPU, and calls that end behind the back of the host.
#include <fmt/format.h>

#include <thread>

#include "base/log.h"
#include "executor/session.h"
#include "executor/session_times.h"
#include "memory/words.h"

namespace tilewire {
namespace {

constexpr std::chrono::seconds kCloseGrace{1};  // for calls in flight
constexpr size_t kLaunchedPerLook = 16;

}  // namespace

void Session::open_gpu(const SessionSetup& setup) {
  if (options_.device != "cuda") return;
  const auto refuse = [this](ErrorKind kind, const char* what, const std::string& values, const char* advice) {
    throw Error(
        kind,
        {.what = what, .where = fmt::format("rank {}", rank().value), .values = values, .limit = "", .advice = advice});
  };
  if (threads_) {
    refuse(ErrorKind::invalid_argument, "ranks that are threads of one process have no GPU", "device = cuda",
           "make each rank a process");
  }
  GpuPlace place{.rank = rank(), .device = options_.cuda_device, .sms = options_.sms};
  for (int32_t r = 0; r < rank().value; ++r) {
    place.on_host += control_->hosts()[r].is_same_host(control_->hosts()[rank().value]) ? 1 : 0;
  }
  gpu_ = open_gpu_rank(place, setup.gpu_driver);
  workers_ = gpu_->sms();
  log_info("GPU {}, {} SMs", gpu_->device(), gpu_->sms());
  shares_ = std::make_unique<GpuShares>(*control_, *gpu_, deadline_in(to_milliseconds(options_.connect_deadline_s)));
  shares_->check(0);
}

void Session::start_gpu() {
  if (!gpu_) return;
  gpu_->start(epoch_);
  kernel_faults_ = std::make_unique<KernelFaults>(rank(), options_.deadline_s);
  fault_watch_ = std::make_unique<FaultWatch>(gpu_->fault(), [this](const FaultRecord& r) { tell_kernel_fault(r); });
}

void Session::tell_kernel_fault(const FaultRecord& record) {
  try {
    if (const auto own = kernel_faults_->own_side(record)) {
      control_->report_mismatch(record.epoch, Rank{static_cast<int32_t>(record.word)}, *own, record.seen);
      return;
    }
    const Error error = kernel_faults_->error(record, arena_->layout().flags);
    control_->send_abort(error.kind(), error.what());
  } catch (const std::exception& error) {
    log_error("what a kernel found wrong could not be told: {}", error.what());
  }
}

DeviceRank Session::device_rank(const KernelNames& names) {
  DeviceRank made = gpu_->device_rank(static_cast<uint64_t>(options_.deadline_s * 1e9));
  made.op = kernel_faults_->add_op(names);
  if (proxy() == nullptr || proxy()->arrival().strategy != ArrivalStrategy::counted) made.arrivals = {};
  return made;
}

void Session::check_operands_on(bool is_gpu, const char* op) const {
  if (is_gpu == (gpu_ != nullptr)) return;
  throw Error(ErrorKind::invalid_argument,
              {.what = is_gpu ? "the operands are in GPU memory, and this communicator is one of CPU ranks"
                              : "the operands are in host memory, and this communicator is one of GPU ranks",
               .where = fmt::format("rank {}, {}", rank().value, op),
               .values = "device = " + options_.device,
               .limit = "",
               .advice = is_gpu ? "make the communicator with TILEWIRE_DEVICE=cuda" : "bring them to this rank's GPU"});
}

void Session::check_has_cpu_ranks(const char* op) const {
  if (gpu_ == nullptr) return;
  throw Error(ErrorKind::unavailable,
              {.what = "this operation has no kernel, and this communicator is one of GPU ranks",
               .where = fmt::format("rank {}, {}", rank().value, op),
               .values = "device = " + options_.device,
               .limit = "cpu",
               .advice = "make a communicator with TILEWIRE_DEVICE=cpu for it"});
}

void Session::note_launched(uint64_t attempt) {
  launched_.push_back(attempt);
  if (launched_.size() <= kMostCallsInFlight) return;
  // The oldest counts as ended: a peer that leaves is no longer missed in it.
  control_->end_call(launched_.front());
  launched_.pop_front();
}

void Session::look_at_gpu() {
  if (!gpu_) return;
  if (has_fault(gpu_->fault())) await_verdict();
  throw_if_dead();
  // To ask the GPU costs more than all the rest of a call that is ready.
  if (launched_.size() >= kLaunchedPerLook && attempts_ % kLaunchedPerLook == 0) end_launched_calls();
}

void Session::end_launched_calls() {
  if (launched_.empty() || !is_gpu_idle()) return;
  for (const uint64_t attempt : launched_) control_->end_call(attempt);
  launched_.clear();
}

bool Session::is_gpu_idle() const noexcept {
  if (!gpu_) return true;
  try {
    return gpu_->is_idle();
  } catch (const std::exception& error) {
    log_error("{}", error.what());  // nothing runs on a GPU that answers so
    return true;
  }
}

void Session::wait_for_gpu() const {
  // The kernels have this deadline too, each of their waits from its own beginning.
  const SteadyTime limit = deadline() + kCloseGrace;
  while (!is_gpu_idle()) {
    throw_if_dead();
    if (steady_now() >= limit) {
      throw Error(ErrorKind::deadline, {.what = "earlier calls have not ended on the GPU",
                                        .where = fmt::format("rank {}", rank().value),
                                        .values = "",
                                        .limit = fmt::format("waited {:.3g} s", options_.deadline_s),
                                        .advice = "look for work on their stream that never ends"});
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// A GPU that no longer answers has lost its context, for a reason that the other ranks may know.
bool Session::has_kernel_given_up() const {
  try {
    return gpu_->has_given_up();
  } catch (const Error& error) {
    log_error("{}", error.what());
    return true;
  }
}

void Session::check() const {
  throw_if_given_up();
  if (!gpu_) return;
  if (const auto remark = gpu_->take_remark()) throw kernel_faults_->error(*remark);
}

void Session::throw_if_given_up() const {
  if (gpu_ && !is_dead() && has_kernel_given_up()) {
    await_verdict();
    throw_if_dead();
    throw Error(ErrorKind::aborted, {.what = "a kernel of this rank has left its call, and nobody said why",
                                     .where = fmt::format("rank {}", rank().value)});
  }
  throw_if_dead();
}

// What is in flight may end well; then its peers must not hear of an abort.
void Session::end_gpu_calls() noexcept {
  if (!gpu_) return;
  const SteadyTime limit = deadline_in(kCloseGrace);
  while (!is_gpu_idle() && !control_->aborted() && steady_now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  if (!is_gpu_idle()) {
    if (!control_->aborted()) tell_abort("closed its communicator during a call");
    if (arena_) raise_abort(arena_->control());
  }
  while (!is_gpu_idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  try {
    if (!control_->aborted()) end_launched_calls();
  } catch (const std::exception& error) {
    log_warn("{}", error.what());
  }
}

}  // namespace tilewire

// The wire process of a virtual cluster (wire_service.h), a program of its own beside the ranks.
//
// What it needs to know comes from the TILEWIRE_* variables that the ranks have too: wire, secret, cuda_device,
// log_level. It says `ready` and the number of SMs of its GPU on standard output once it listens, and ends when its
// standard input does, so also when who started it dies, or by SIGINT, SIGTERM or SIGHUP.
#include <cuda_runtime_api.h>
#include <sys/signalfd.h>
#include <tilewire/error.h>
#include <tilewire/options.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>

#include "base/log.h"
#include "device/cuda_check.cuh"
#include "device/wire/wire.cuh"
#include "executor/wire/wire_service.h"
#include "memory/cuda/cuda_device.h"

namespace tilewire {
namespace {

class KernelEngine final : public WireEngine {
 public:
  explicit KernelEngine(const WireMemory& memory) : wire_(memory.arenas, memory.rings, memory.rings_on_gpu) {}

  void start() override { wire_.start(); }
  void stop() override {
    if (wire_.stop()) return;
    trouble_ = "its kernel did not end in time, or not well";
    throw Error(ErrorKind::unavailable, {.what = "the wire between the nodes has failed", .where = trouble_});
  }
  std::string trouble() override {
    const cudaError_t result = wire_.look();
    if (trouble_.empty() && result != cudaErrorNotReady) {
      trouble_ = result == cudaSuccess ? "its kernel has ended" : cudaGetErrorString(result);
    }
    return trouble_;
  }

 private:
  Wire wire_;
  std::string trouble_;
};

UniqueFd signals_that_end() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, number);
  if (sigprocmask(SIG_BLOCK, &signals, nullptr) != 0) throw std::runtime_error("signals cannot be blocked");
  return UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC));
}

void run() {
  const UniqueFd signals = signals_that_end();
  const Options options = Options::from_environment();
  set_log_level(parse_log_level(options.log_level));
  const int ordinal = static_cast<int>(std::max<int64_t>(options.cuda_device, 0));
  CudaDevice::count(cuda_driver());
  const auto device = std::make_shared<const CudaDevice>(ordinal, cuda_driver());
  check_cuda(cudaSetDevice(ordinal), "choosing the GPU");
  WireService service({.socket = options.wire,
                       .secret = options.secret,
                       .version = TILEWIRE_VERSION,
                       .tools = {.device = device,
                                 .make_engine = [](const WireMemory& m) { return std::make_unique<KernelEngine>(m); },
                                 .roll_call = hold_roll_call}});
  std::printf("ready %d SMs\n", device->sms());
  std::fflush(stdout);
  service.serve(std::array{STDIN_FILENO, signals.get()});
}

}  // namespace
}  // namespace tilewire

int main() {
  try {
    tilewire::run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilewire_wire: %s\n", error.what());
    // A kernel may run that will not end: then nothing of CUDA may be taken down.
    std::fflush(stdout);
    std::_Exit(1);
  }
}

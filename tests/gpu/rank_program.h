// What the rank side of gpu_ranks_test is made of: a communicator with calls of all operations, as a program of a user
// has it, and claims about how it ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/sync/global_timer.h"
#include "device/sync/roll_call.h"
#include "executor/device_call.h"
#include "device/cuda_check.cuh"
#include "device/cuda_stream.cuh"
#include "gpu_program.cuh"
#include "ops/device_op_list.h"

namespace tilewire {

constexpr std::chrono::seconds kPatience{15};  // for what should take milliseconds

using Clock = std::chrono::steady_clock;

inline double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

class Stream {
 public:
  operator cudaStream_t() const { return stream_.get(); }
  // False, and a claim that is not true, when it takes too long.
  bool finish() const {
    const auto begin = Clock::now();
    for (;;) {
      const cudaError_t result = cudaStreamQuery(stream_.get());
      if (result == cudaSuccess) return true;
      if (result != cudaErrorNotReady) {
        std::printf("  the stream ended with: %s\n", cudaGetErrorString(result));
        return false;
      }
      if (Clock::now() - begin > kPatience) break;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    expect(false, "what is in a stream ends");
    return false;
  }

 private:
  CudaStream stream_;
};

// A communicator with the calls of all operations that have a kernel, and the session's end before that of the kernels.
class Joined {
 public:
  explicit Joined(const Options& options)
      : session_(Session::create(
            {.options = options, .threads = {}, .roll_call = hold_roll_call, .gpu_clock = make_global_clock})),
        calls_(*session_) {}
  ~Joined() { session_->close(); }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

  Session& session() { return *session_; }
  int32_t me() const { return session_->rank().value; }
  Topology topology() const { return session_->topology(); }
  int32_t ranks() const { return topology().ranks; }
  template <class Case>
  CallReport call(const Case& data, const Stream& stream) {
    return call<typename Case::Device>(data.arguments(), stream);
  }
  template <class Device>
  CallReport call(const typename Device::Op::Arguments& arguments, const Stream& stream) {
    return calls_.get<Device>().run(arguments, static_cast<cudaStream_t>(stream));
  }
  void meet() { session_->control().barrier("test", deadline_in(std::chrono::seconds(30))); }

 private:
  std::unique_ptr<Session> session_;
  DeviceOpObjects<DeviceOps> calls_;
};

// What `f` threw.
inline std::optional<Error> error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  }
  return std::nullopt;
}

// The communicator's end, as check() tells it.
inline void expect_end(Joined& joined, ErrorKind kind, const std::vector<std::string>& parts, Clock::time_point begin) {
  std::optional<Error> error;
  while (!error && Clock::now() - begin < kPatience) {
    error = error_of([&] { joined.session().check(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  expect(error.has_value(), "the communicator dies");
  if (!error) return;
  std::printf("  rank %d after %.1f ms: %s\n", joined.me(), ms_since(begin), error->what());
  expect(error->kind() == kind, std::string("it is a ") + to_string(kind));
  for (const std::string& part : parts) {
    expect(std::string(error->what()).find(part) != std::string::npos, "the error says: " + part);
  }
  const auto again = error_of([&] { joined.session().throw_if_dead(); });
  expect(again && std::string(again->what()) == error->what(), "and says it again");
}

template <class Case>
void call_once(Joined& joined, Case& data, const Stream& stream, int64_t salt) {
  data.set_salt(salt);
  data.fill_results(stream);
  data.enqueue_inputs(stream);
  joined.call(data, stream);
  stream.finish();
  joined.session().check();
}

}  // namespace tilewire

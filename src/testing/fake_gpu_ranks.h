// For tests of GPU ranks over a driver that is none (memory/cuda/fake_driver.h), as threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "executor/session.h"
#include "executor/wire/host_wire.h"
#include "memory/cuda/fake_driver.h"
#include "testing/thread_cluster.h"

namespace tilewire {

inline constexpr int64_t kPage = int64_t{2} << 20;
inline constexpr const char* kJobSecret = "what only these ranks know";

inline Options gpu_options() {
  Options o;
  o.device = "cuda";
  o.arena_initial_bytes = kPage;
  o.arena_reserve_bytes = 16 * kPage;
  o.user_arena_reserve_bytes = 16 * kPage;
  o.max_chunks_per_source = 16;
  o.deadline_s = 20;
  o.connect_deadline_s = 20;
  o.sms = 32;
  o.secret = kJobSecret;
  return o;
}

// The timer of a GPU that is so much behind the host's clock. It is quick to read, but not to make.
inline constexpr int64_t kGpuBehindNs = 1'000'000'000'000;
inline constexpr std::chrono::milliseconds kClockMaking{20};

inline GpuClock slow_to_make_clock() {
  std::this_thread::sleep_for(kClockMaking);
  return [] { return static_cast<uint64_t>(trace_clock_ns() - kGpuBehindNs); };
}

// Ranks of one host, each with an arena of its own as between processes. "" or the error each one ended with.
inline std::vector<std::string> run_gpu_ranks(int32_t ranks, const Options& options,
                                              const std::function<void(Session&)>& body,
                                              const std::function<void(int32_t, Options&)>& adjust = {},
                                              const RollCallKernel& roll_call = full_roll_call()) {
  ThreadStore store;
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      try {
        SessionSetup setup{.options = options,
                           .store = &store,
                           .threads = {},
                           .gpu_driver = &FakeGpu::driver(),
                           .roll_call = roll_call,
                           .gpu_clock = slow_to_make_clock};
        setup.options.rank = r;
        setup.options.world_size = ranks;
        if (adjust) adjust(r, setup.options);
        const auto session = Session::create(setup);
        body(*session);
        session->close();
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

// No object of the driver is left behind, and none of its rules was broken.
class GpuSession : public ::testing::Test {
 protected:
  void SetUp() override { FakeGpu::start(); }
  void TearDown() override {
    EXPECT_EQ(FakeGpu::live_text(), "");
    EXPECT_EQ(FakeGpu::broken_rules(), 0);
  }
  static void expect_all_well(const std::vector<std::string>& errors) {
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  }
};

}  // namespace tilewire

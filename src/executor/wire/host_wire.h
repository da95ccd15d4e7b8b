// Tests only: the wire process as a thread of this process, over the fake driver, whose memory the host reaches. A
// thread plays the kernel that moves data, and ranks are threads too.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "executor/wire/wire_service.h"
#include "memory/cuda/cuda_device.h"
#include "memory/cuda/fake_driver.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

// How often engines were started, and how the next one shall fail.
struct HostEngineLog {
  std::atomic<int> starts{0};
  std::atomic<bool> has_trouble{false};
};

class HostEngine final : public WireEngine {
 public:
  HostEngine(const WireMemory& memory, HostEngineLog& log) : memory_(memory), log_(log) {}
  ~HostEngine() override { end(); }

  void start() override {
    ++log_.starts;
    must_stop_ = false;
    thread_ = std::thread([this] { run(); });
  }
  void stop() override { end(); }
  std::string trouble() override { return log_.has_trouble ? "planted trouble" : ""; }

 private:
  void end() {
    must_stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // What is in the rings is moved before it ends, as the kernel does.
  void run() {
    while (true) {
      const bool is_last = must_stop_;
      bool has_moved = false;
      for (size_t r = 0; r < memory_.rings.size(); ++r) has_moved = move_one(r) || has_moved;
      if (is_last && !has_moved) return;
      if (!has_moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  bool move_one(size_t r) {
    const WireRing& ring = memory_.rings[r];
    const uint64_t landed = std::atomic_ref(ring.header->landed).load();
    WireEntry seen;
    for (int i = 3; i >= 0; --i) seen.words[i] = std::atomic_ref(ring.entry(landed).words[i]).load();
    if (!is_there(seen, ring.lap_bit(landed))) return false;
    const WireMove move = unpack(seen);
    std::byte* const to = memory_.arenas[static_cast<size_t>(move.peer.value)] + move.dst_offset;
    if (move.is_value) {
      std::atomic_ref(*reinterpret_cast<uint64_t*>(to)).store(move.value);
    } else {
      std::memcpy(to, memory_.arenas[r] + move.src_offset, size_t{move.units} * kWireUnitBytes);
    }
    std::atomic_ref(ring.header->landed).store(landed + 1);
    return true;
  }

  WireMemory memory_;
  HostEngineLog& log_;
  std::atomic<bool> must_stop_{false};
  std::thread thread_;
};

// As roll_call.cu does it. `present`: of its CTAs, so many come.
inline void host_roll_call(const RollCallPart& part, int32_t present) {
  RollCallPage& page = *part.page;
  const auto word = [](uint64_t& w) { return std::atomic_ref(w); };
  word(page.came[part.participant]) += static_cast<uint64_t>(present);
  word(page.present) += static_cast<uint64_t>(present);
  const SteadyTime limit = deadline_in(std::chrono::nanoseconds(part.timeout_ns));
  while (word(page.present) < static_cast<uint64_t>(part.expected)) {
    if (word(page.missed) != 0) return;
    if (steady_now() >= limit) ++word(page.missed);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

inline RollCallKernel full_roll_call() {
  return [](const RollCallPart& part) { host_roll_call(part, part.ctas); };
}

class HostWire {
 public:
  static constexpr const char* kSecret = "the secret of these tests";
  static constexpr const char* kVersion = TILEWIRE_VERSION;

  explicit HostWire(const std::string& secret = kSecret, RollCallKernel roll_call = full_roll_call())
      : stop_(eventfd(0, EFD_CLOEXEC)) {
    std::string folder = (std::filesystem::temp_directory_path() / "tilewire-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    WireTools tools{.device = std::make_shared<const CudaDevice>(0, FakeGpu::driver()),
                    .make_engine = [this](const WireMemory& m) { return std::make_unique<HostEngine>(m, log); },
                    .roll_call = std::move(roll_call)};
    service_ = std::make_unique<WireService>(
        WireServiceConfig{.socket = socket(), .secret = secret, .version = kVersion, .tools = std::move(tools)});
    thread_ = std::thread([this] {
      try {
        service_->serve(std::array{stop_.get()});
      } catch (const Error& error) {
        end_ = error.what();
      }
      service_.reset();  // as the process ends: connections close
    });
  }
  ~HostWire() {
    end();
    std::filesystem::remove_all(folder_);
  }
  HostWire(const HostWire&) = delete;
  HostWire& operator=(const HostWire&) = delete;

  std::string socket() const { return (folder_ / "wire").string(); }
  // As its launcher does; gives the error that it ended with by itself.
  std::string end() {
    const uint64_t one = 1;
    EXPECT_EQ(write(stop_.get(), &one, sizeof(one)), 8);
    if (thread_.joinable()) thread_.join();
    return end_;
  }

  HostEngineLog log;

 private:
  UniqueFd stop_;
  std::filesystem::path folder_;
  std::unique_ptr<WireService> service_;
  std::string end_;
  std::thread thread_;
};

}  // namespace tilewire

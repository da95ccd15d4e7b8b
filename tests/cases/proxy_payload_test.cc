// B64: a payload that is not yet visible when its command appears. The transport below reads it on the proxy thread,
// the moment the proxy posts, and checks that it is whole and of its own round: each slot is written again and again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "transport/proxy.h"

namespace tilewire {
namespace {

constexpr int kProducers = 4;
constexpr uint64_t kCommandsEach = 25'000;
constexpr uint64_t kSlots = 256;  // of a producer, as many as its ring has entries
constexpr uint64_t kWords = 32;
constexpr uint64_t kBytes = kWords * 8;
constexpr uint64_t kUnits = kBytes / kWireUnitBytes;

// The words of a payload follow from its first, which no other round and no other producer has.
uint64_t word_of(uint64_t first, uint64_t w) { return first * 0x9E3779B97F4A7C15u + w * 0xD1B54A32D192ED03u; }

// Completes at once what it has checked.
class CheckingTransport final : public Transport {
 public:
  CheckingTransport(const std::byte* arena, uint64_t begin) : arena_(arena), begin_(begin) {}
  const Caps& caps() const override { return caps_; }
  void register_arena(uint64_t, uint64_t) override {}
  std::vector<std::byte> address() override { return {}; }
  void connect(std::span<const std::vector<std::byte>>, std::chrono::nanoseconds) override {}
  size_t post(std::span<const WriteRequest> requests) override {
    for (const WriteRequest& request : requests) {
      if (request.kind == RequestKind::write) check(request);
      done_.push_back({.kind = EventKind::completed, .peer = request.peer, .id = request.id});
    }
    return requests.size();
  }
  size_t poll(std::span<Event> events) override {
    const size_t n = std::min(events.size(), done_.size());
    std::copy_n(done_.begin(), n, events.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }
  std::string describe_status(int32_t) const override { return ""; }
  void close() noexcept override {}

  uint64_t wrong() const { return wrong_.load(); }
  uint64_t checked(int producer) const { return checked_[static_cast<size_t>(producer)].load(); }

 private:
  // A slot is free for its producer again once it was checked.
  void check(const WriteRequest& request) {
    const auto* words = reinterpret_cast<const uint64_t*>(arena_ + request.src_offset);
    const uint64_t producer = (request.src_offset - begin_) / (kSlots * kBytes);
    const uint64_t first = (producer << 48) + checked_[producer].load(std::memory_order_relaxed);
    uint64_t bad = request.bytes == kBytes ? 0 : 1;
    for (uint64_t w = 0; w < kWords; ++w) bad += words[w] != word_of(first, w) ? 1 : 0;
    wrong_.fetch_add(bad != 0 ? 1 : 0, std::memory_order_relaxed);
    checked_[producer].fetch_add(1, std::memory_order_release);
  }

  Caps caps_{.name = "checking", .ordered_writes = true, .value_writes = true, .max_outstanding = 256};
  const std::byte* arena_;
  uint64_t begin_;
  std::vector<Event> done_;
  std::atomic<uint64_t> wrong_{0};
  std::array<std::atomic<uint64_t>, kProducers> checked_{};
};

// A proxy over the checking transport, with a ring for each producer.
struct Rig {
  Rig() {
    ProxyConfig config{.rank = Rank{0}, .layout = layout, .control_page = arena.data(), .half_bytes = 1 << 20};
    config.peers = {Rank{1}};
    for (int p = 0; p < kProducers; ++p) {
      rings.push_back(std::make_unique<CommandRing>(kSlots));
      config.rings.push_back(rings.back()->memory());
    }
    proxy = std::make_unique<Proxy>(config, transport, ProxyOptions{});
  }

  void write_payload(int p, uint64_t i) {
    auto* words = reinterpret_cast<uint64_t*>(arena.data() + layout.half_offset(1)) + slot(p, i) * kWords;
    for (uint64_t w = 0; w < kWords; ++w) words[w] = word_of((static_cast<uint64_t>(p) << 48) + i, w);
  }
  void post(CommandProducer& producer, int p, uint64_t i) {
    const Command command{.kind = CommandKind::write,
                          .peer = Rank{1},
                          .word = static_cast<uint32_t>(8 + p),
                          .units = kUnits,
                          .src_unit = slot(p, i) * kUnits,
                          .dst_unit = slot(p, i) * kUnits};
    while (!producer.try_post(command) && !proxy->has_fault()) std::this_thread::yield();
  }
  // Until `count` commands of a producer were checked, or the proxy has failed, or 20 s.
  void wait_checked(int p, uint64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (transport.checked(p) < count && !proxy->has_fault() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
  }
  static uint64_t slot(int p, uint64_t i) { return static_cast<uint64_t>(p) * kSlots + i % kSlots; }

  ArenaLayout layout{.flags = {.ranks = 2, .max_chunks = 64}, .half_stride_bytes = 1 << 20};
  std::vector<std::byte> arena = std::vector<std::byte>(static_cast<size_t>(layout.total_bytes()));
  CheckingTransport transport{arena.data(), static_cast<uint64_t>(layout.half_offset(1))};
  std::vector<std::unique_ptr<CommandRing>> rings;
  std::unique_ptr<Proxy> proxy;
};

TEST(Cases, B64PayloadIsWholeWhenTheProxyReadsItAtItsCommand) {
  Rig rig;
  const auto produce = [&](int p) {
    CommandProducer producer(rig.rings[static_cast<size_t>(p)]->memory());
    for (uint64_t i = 0; i < kCommandsEach; ++i) {
      if (i >= kSlots) rig.wait_checked(p, i - kSlots + 1);
      rig.write_payload(p, i);
      rig.post(producer, p, i);
    }
    rig.wait_checked(p, kCommandsEach);
  };
  std::vector<std::thread> threads;
  for (int p = 0; p < kProducers; ++p) threads.emplace_back(produce, p);
  for (std::thread& thread : threads) thread.join();
  for (int p = 0; p < kProducers; ++p) EXPECT_EQ(rig.transport.checked(p), kCommandsEach) << "producer " << p;
  EXPECT_FALSE(rig.proxy->has_fault());
  EXPECT_EQ(rig.transport.wrong(), 0u) << "payloads were not whole when their command was taken";
}

// The check sees what it is there for: a payload that comes after its command.
TEST(Cases, B64PayloadThatComesAfterItsCommandIsSeen) {
  Rig rig;
  CommandProducer producer(rig.rings[0]->memory());
  constexpr uint64_t kLate = 10;
  for (uint64_t i = 0; i < kLate; ++i) {
    rig.post(producer, 0, i);
    rig.wait_checked(0, i + 1);
    rig.write_payload(0, i);
  }
  EXPECT_EQ(rig.transport.wrong(), kLate);
}

}  // namespace
}  // namespace tilewire

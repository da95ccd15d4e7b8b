// For tests: some ranks of one process, each on a node of its own, joined by a transport.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "memory/thread_arena.h"
#include "memory/words.h"
#include "transport/emulated/local_reach.h"
#include "transport/transport.h"

namespace tilewire {

using TransportMaker = std::function<std::unique_ptr<Transport>(const TransportContext&)>;

class TestNetwork {
 public:
  static ArenaLayout default_layout(int32_t ranks) {
    return {.flags = {.ranks = ranks, .max_chunks = 64}, .half_stride_bytes = 8 << 20, .user_stride_bytes = 1 << 20};
  }

  TestNetwork(int32_t ranks, const TransportMaker& make) : TestNetwork(default_layout(ranks), make) {}

  TestNetwork(const ArenaLayout& layout, const TransportMaker& make) : layout_(layout) {
    const int32_t ranks = layout.flags.ranks;
    std::vector<Node> nodes;
    for (int32_t r = 0; r < ranks; ++r) nodes.emplace_back(r);
    memory_ = std::make_unique<ThreadArenaGroup>(nodes, ArenaConfig{.rank = Rank{0},
                                                                    .layout = layout,
                                                                    .half_bytes = layout.half_stride_bytes,
                                                                    .user_bytes = layout.user_stride_bytes});
    for (int32_t r = 0; r < ranks; ++r) arenas_.push_back(memory_->arena(Rank{r}));
    for (int32_t r = 0; r < ranks; ++r) {
      transports_.push_back(make(context(Rank{r})));
      for (const ArenaRange& range : arenas_[r]->ranges()) {
        transports_[r]->register_arena(static_cast<uint64_t>(range.begin_bytes), static_cast<uint64_t>(range.bytes));
      }
    }
    connect();
  }
  ~TestNetwork() {
    for (const std::unique_ptr<Transport>& transport : transports_) transport->close();
  }

  int32_t ranks() const { return layout_.flags.ranks; }
  const ArenaLayout& layout() const { return layout_; }
  Transport& transport(int32_t r) { return *transports_[static_cast<size_t>(r)]; }
  std::byte* arena(int32_t r) { return arenas_[static_cast<size_t>(r)]->base(); }
  std::vector<Rank> peers(Rank of) const {
    std::vector<Rank> all;
    for (int32_t r = 0; r < ranks(); ++r) {
      if (Rank{r} != of) all.emplace_back(r);
    }
    return all;
  }

 private:
  TransportContext context(Rank rank) const {
    TransportContext context{.rank = rank, .ranks = ranks(), .peers = peers(rank), .local = rank.value};
    context.arena = memory_->base(rank);
    context.arena_bytes = static_cast<uint64_t>(layout_.total_bytes());
    LocalReach reach;
    for (int32_t r = 0; r < ranks(); ++r) reach.arena_bases.push_back(memory_->base(Rank{r}));
    context.local_reach = std::make_shared<LocalReach>(std::move(reach));
    return context;
  }

  void connect() {
    std::vector<std::vector<std::byte>> addresses;
    for (const std::unique_ptr<Transport>& transport : transports_) addresses.push_back(transport->address());
    std::vector<std::thread> threads;
    for (const std::unique_ptr<Transport>& transport : transports_) {
      threads.emplace_back([&] { transport->connect(addresses, std::chrono::seconds(10)); });
    }
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    for (const std::unique_ptr<Transport>& transport : transports_) {
      threads.emplace_back([&] { transport->check_paths({std::chrono::seconds(10)}); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  ArenaLayout layout_;
  std::unique_ptr<ThreadArenaGroup> memory_;
  std::vector<std::unique_ptr<Arena>> arenas_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

// Calls `step` until it is true or the time is up.
template <class Step>
bool step_until(Step&& step, std::chrono::nanoseconds limit = std::chrono::seconds(20)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (int i = 1; !step(); ++i) {
    if (std::chrono::steady_clock::now() > end) return false;
    if (i % 8 == 0) std::this_thread::yield();
  }
  return true;
}

}  // namespace tilewire

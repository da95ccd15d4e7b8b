// What the wire between nodes costs kernels that have nothing to do with it: the plain kernel of all ranks, alone and beside
// the wire of another cluster, idle and busy. (Looks at host memory once cost 40 %, docs/decisions/0120.)
#pragma once

#include "bare_transfer.cuh"
#include "fused_bench.cuh"

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

namespace tilewire {

class OtherWire {
 public:
  // Meanwhile shards move, at the wire's full rate, if `moves`.
  TimeUs beside(const TimeUs& what, bool moves) {
    return [this, what, moves](int count) {
      cluster_.start_wire();
      std::atomic<bool> is_over{false};
      std::thread mover([&] {
        for (; moves && !is_over; ++next_) transfer_.run_us(next_, 1);
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const double us = what(count);
      is_over = true;
      mover.join();
      cluster_.stop_wire();
      return us;
    };
  }

 private:
  static constexpr int64_t kShardBytes = int64_t{8} << 20, kChunkBytes = 131072;

  VirtualCluster cluster_{
      {.widths = {2, 2}, .max_chunks = kBenchChunks, .half_bytes = 4 * kShardBytes, .network = kBenchNetwork}};
  BareTransfer transfer_{cluster_, kShardBytes, kChunkBytes};
  Epoch next_ = 1;
};

template <class Traits>
void measure_beside_wire(const Turns& turns, const BenchSize& size, Rows& rows) {
  FusedBench<Traits> bench(size, {4});
  OtherWire wire;
  const std::vector<std::vector<double>> us =
      time_in_turns(turns, {bench.plain(), wire.beside(bench.plain(), false), wire.beside(bench.plain(), true)});
  for (const bool moves : {false, true}) {
    rows.add({size.text() + (moves ? ", a busy wire" : ", an idle wire"),
              "plain",
              compare(us[moves ? 2 : 1], us[0]),
              {"beside_the_wire", "the plain kernel alone"}});
  }
}

}  // namespace tilewire

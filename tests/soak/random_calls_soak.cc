// Random sequences of AllGather+GEMM calls on random clusters under random delays; every element is compared bit for
// bit.
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <random>

#include "ops/ag_gemm/call_fixture.h"
#include "soak/soak_run.h"

namespace tilewire::ag_gemm {
namespace {

// What one seed stands for.
class Scene {
 public:
  explicit Scene(uint64_t seed) : random_(seed) {
    layout_ = pick<std::vector<int32_t>>({{2, 2}, {1, 1}, {2, 1}, {3, 1}, {2, 3}, {1, 1, 2}, {4}, {1, 2, 1, 1}});
    make_options();
    const int64_t calls = 3 + below(8);
    for (int64_t i = 0; i < calls; ++i) calls_.push_back(make_call(static_cast<uint64_t>(i)));
  }

  const std::vector<int32_t>& layout() const { return layout_; }
  const Options& options() const { return options_; }
  const std::vector<TestCall>& calls() const { return calls_; }
  std::string text() const {
    return testing::PrintToString(layout_) + " " + options_.emulated_personality + " arrivals " + options_.arrivals;
  }

 private:
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int64_t n) { return below(n) == 0; }
  template <class T>
  T pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

  void make_options() {
    options_ = test_options();
    options_.deadline_s = 120;  // a machine with few cores is slow, not wrong
    options_.connect_deadline_s = 120;
    options_.death_s = 60;
    options_.emulated_personality = pick<std::string>({"rc", "srd", "relaxed", "srd"});
    options_.emulated_seed = below(1 << 20);
    options_.emulated_latency_us = static_cast<double>(pick<int64_t>({0, 20, 200}));
    options_.test_delay_us = pick<int64_t>({0, 50, 300, 1000});
    options_.arrivals = pick<std::string>({"proxy", "relay"});
    options_.ring_entries = pick<int64_t>({16, 64, 1024});
    options_.workers = 1 + below(2);
    options_.spin_us = pick<int64_t>({0, 5, 20});
    options_.arena_initial_bytes = pick<int64_t>({4096, 1 << 20});
    options_.first_epoch = pick<int64_t>({1, (int64_t{1} << 10) - 3, (int64_t{1} << 11) - 3, (int64_t{1} << 32) - 3});
  }

  TestCall make_call(uint64_t number) {
    TestCall call;
    const int32_t ranks = std::accumulate(layout_.begin(), layout_.end(), 0);
    for (int32_t r = 0; r < ranks; ++r) call.rows.push_back(one_in(3) ? 0 : below(90));
    call.k = one_in(8) ? 0 : below(80);
    const int64_t weights = one_in(4) ? 1 + below(3) : 1;
    for (int64_t w = 0; w < weights; ++w) call.cols.push_back(one_in(8) ? 0 : below(48));
    call.dtype = pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.out_dtype = pick<DataType>({DataType::bf16, DataType::fp16, DataType::fp32});
    call.wants_gathered = one_in(4);
    call.has_bias = one_in(3);
    call.is_n_by_k = one_in(2);
    call.salt = number * 3 + static_cast<uint64_t>(below(100));
    if (one_in(3)) call.plan_json = to_json(make_plan());
    return call;
  }

  PlanChoice make_plan() {
    return {
        .chunk_rows = 2 + below(30),
        .is_fused = !one_in(3),
        .tile_rows = static_cast<int32_t>(1 + below(40)),
        .tile_cols = static_cast<int32_t>(8 + below(40)),
        .raster_rows = static_cast<int32_t>(1 + below(3)),
        .workers = static_cast<int32_t>(1 + below(2)),
        .cursors = {.load_ahead = static_cast<int32_t>(below(4)), .publish_behind = static_cast<int32_t>(below(4))}};
  }

  std::mt19937_64 random_;
  std::vector<int32_t> layout_;
  Options options_;
  std::vector<TestCall> calls_;
};

TEST(RandomCallsSoak, EveryElementOfEveryCallIsRight) {
  SoakClock clock(3);
  int64_t calls = 0;
  uint64_t seed = soak_run().seed;
  for (; clock.goes_on() && !HasFailure(); ++seed) {
    const Scene scene(seed);
    SCOPED_TRACE("--seed=" + std::to_string(seed) + ": " + scene.text());
    run_and_check(scene.layout(), scene.options(), scene.calls());
    calls += static_cast<int64_t>(scene.calls().size());
  }
  EXPECT_GE(calls, 3 * 3) << "hardly anything was checked";
  std::printf("%lld calls on %llu clusters, seeds from %llu on\n", static_cast<long long>(calls),
              static_cast<unsigned long long>(seed - soak_run().seed),
              static_cast<unsigned long long>(soak_run().seed));
}

}  // namespace
}  // namespace tilewire::ag_gemm

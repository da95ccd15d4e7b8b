// Random sequences of calls of the ops of the list on random clusters under random delays; every element is compared
// bit for bit.
#include <gtest/gtest.h>

#include <op_random_calls.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "ops/op_list.h"
#include "soak/soak_networks.h"
#include "soak/soak_run.h"
#include "testing/op_test_support.h"
#include "testing/simulation_test_support.h"

namespace tilewire {
namespace {

// A call that every rank makes, and checks.
using SceneCall = std::function<void(OpObjects<Ops>&, Rank)>;

template <class Op>
SceneCall random_call(const Layout& layout, Dice& dice) {
  return [call = OpRandomCalls<Op>::call(layout, dice)](OpObjects<Ops>& ops, Rank rank) {
    typename OpTestTraits<Op>::Checker checker(call, rank.value);
    ops.get<Op>().run(checker.arguments());
    checker.check();
  };
}

template <class... Op>
SceneCall random_call_of(OpTypes<Op...>, const Layout& layout, Dice& dice) {
  const std::vector<SceneCall (*)(const Layout&, Dice&)> makers = {&random_call<Op>...};
  return dice.pick(makers)(layout, dice);
}

// What one seed stands for.
class Scene {
 public:
  explicit Scene(uint64_t seed) : dice_(seed) {
    layout_ = dice_.pick<Layout>({{2, 2}, {1, 1}, {2, 1}, {3, 1}, {2, 3}, {1, 1, 2}, {4}, {1, 2, 1, 1}});
    make_options();
    const int64_t calls = 3 + dice_.below(8);
    for (int64_t i = 0; i < calls; ++i) calls_.push_back(random_call_of(Ops{}, layout_, dice_));
  }

  void run() const {
    const auto outcomes = run_thread_cluster(
        layout_, options_,
        [this](Session& session) {
          OpObjects<Ops> ops(session);
          for (const SceneCall& call : calls_) call(ops, session.rank());
        },
        [this](Rank rank, Options& own) { use_device_of_node(node_of(layout_, rank.value), own); });
    EXPECT_EQ(first_error(outcomes), "");
  }
  int64_t calls() const { return static_cast<int64_t>(calls_.size()); }
  std::string text() const {
    return testing::PrintToString(layout_) + " " + network_text(options_) + " arrivals " + options_.arrivals;
  }

 private:
  void make_options() {
    options_ = dice_.pick(soak_networks());
    options_.deadline_s = 120;  // a machine with few cores is slow, not wrong
    options_.connect_deadline_s = 120;
    options_.death_s = 60;
    options_.emulated_seed = dice_.below(1 << 20);
    options_.emulated_latency_us = static_cast<double>(dice_.pick<int64_t>({0, 20, 200}));
    options_.test_delay_us = dice_.pick<int64_t>({0, 50, 300, 1000});
    options_.arrivals = dice_.pick<std::string>({"proxy", "relay"});
    options_.ring_entries = dice_.pick<int64_t>({16, 64, 1024});
    options_.workers = 1 + dice_.below(2);
    options_.spin_us = dice_.pick<int64_t>({0, 5, 20});
    options_.arena_initial_bytes = dice_.pick<int64_t>({4096, 1 << 20});
    options_.first_epoch =
        dice_.pick<int64_t>({1, (int64_t{1} << 10) - 3, (int64_t{1} << 11) - 3, (int64_t{1} << 32) - 3});
  }

  Dice dice_;
  Layout layout_;
  Options options_;
  std::vector<SceneCall> calls_;
};

TEST(RandomCallsSoak, EveryElementOfEveryCallIsRight) {
  SoakClock clock(3);
  int64_t calls = 0;
  uint64_t seed = soak_run().seed;
  for (; clock.goes_on() && !HasFailure(); ++seed) {
    const Scene scene(seed);
    SCOPED_TRACE("--seed=" + std::to_string(seed) + ": " + scene.text());
    scene.run();
    calls += scene.calls();
  }
  EXPECT_GE(calls, 3 * 3) << "hardly anything was checked";
  std::printf("%lld calls on %llu clusters, seeds from %llu on\n", static_cast<long long>(calls),
              static_cast<unsigned long long>(seed - soak_run().seed),
              static_cast<unsigned long long>(soak_run().seed));
}

}  // namespace
}  // namespace tilewire

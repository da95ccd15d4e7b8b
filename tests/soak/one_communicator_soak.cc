// Ten thousand calls of all ops of the list on one communicator, in any order, each of them again and again by the
// planner's plan or a random one, fused and not: every result has the bits of the first one of its call.
#include <gtest/gtest.h>

#include <op_random_calls.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "fake_verbs/control.h"
#include "ops/op_list.h"
#include "soak/soak_networks.h"
#include "soak/soak_run.h"
#include "testing/op_test_support.h"
#include "testing/sanitized.h"
#include "testing/simulation_test_support.h"

namespace tilewire {
namespace {

constexpr int kPool = 48;  // different calls
// Ten thousand a minute, and as many at least.
int64_t calls() {
  return soak_run().of_that_many(soak_run().is_long
                                     ? static_cast<int64_t>(1e4 * std::max(soak_run().minutes.count(), 1.0))
                                 : kIsSanitized ? 200
                                                : 500);
}

// One call on one rank, which keeps its data.
class PooledCall {
 public:
  virtual ~PooledCall() = default;
  // Elements are compared in the first call, or `each_time`; bits are those of the first one.
  virtual void run(OpObjects<Ops>& ops, bool is_other_plan, bool each_time) = 0;
};

// The plan with the products before all else, or not before all else; "" where a window forbids that.
std::string other_plan(std::string plan) {
  if (plan.find("\"window\":") != std::string::npos && plan.find("\"window\":0") == std::string::npos) return "";
  const std::string fused = "\"is_fused\":true", unfused = "\"is_fused\":false";
  const size_t at = plan.find(fused);
  if (at != std::string::npos) return plan.replace(at, fused.size(), unfused);
  return plan.replace(plan.find(unfused), unfused.size(), fused);
}

template <class Op>
class PooledCallOf : public PooledCall {
 public:
  template <class TestCall>
  PooledCallOf(const TestCall& call, Rank rank) : checker_(call, rank.value) {}

  void run(OpObjects<Ops>& ops, bool is_other_plan, bool each_time) override {
    for (OwnedMatrix& result : checker_.results()) result.fill(std::numeric_limits<float>::quiet_NaN());
    auto args = checker_.arguments();
    if (is_other_plan && !other_.empty()) args.plan_json = other_;
    const CallReport report = ops.get<Op>().run(args);
    if (first_.empty() || each_time) checker_.check();
    if (first_.empty()) {
      other_ = other_plan(report.plan_json);
      for (const OwnedMatrix& result : checker_.results()) first_.push_back(result.bytes());
    }
    for (size_t i = 0; i < first_.size(); ++i) {
      ASSERT_TRUE(checker_.results()[i].bytes() == first_[i]) << Op::kName << " by " << report.plan_json;
    }
  }

 private:
  typename OpTestTraits<Op>::Checker checker_;
  std::vector<std::vector<std::byte>> first_;
  std::string other_;
};

template <class... Op>
std::unique_ptr<PooledCall> random_call_of(OpTypes<Op...>, const Layout& layout, Dice& dice, Rank rank) {
  using Make = std::unique_ptr<PooledCall> (*)(const Layout&, Dice&, Rank);
  const std::vector<Make> makers = {[](const Layout& l, Dice& d, Rank r) -> std::unique_ptr<PooledCall> {
    return std::make_unique<PooledCallOf<Op>>(OpRandomCalls<Op>::call(l, d), r);
  }...};
  return dice.pick(makers)(layout, dice, rank);
}

struct Pool {
  Layout layout = {2, 2};
  int64_t calls = 0;
  int kinds = kPool;
  bool each_time = false;
};

template <class PooledOps>
void run_pool(PooledOps pooled, const Pool& p, Options options) {
  options.deadline_s = 120;
  options.ring_entries = 64;
  int64_t others = 0;
  const auto body = [&](Session& session) {
    Dice dice(soak_run().seed);  // the same on all ranks
    OpObjects<Ops> ops(session);
    std::vector<std::unique_ptr<PooledCall>> pool;
    for (int i = 0; i < p.kinds; ++i) pool.push_back(random_call_of(pooled, p.layout, dice, session.rank()));
    for (int64_t i = 0; i < p.calls && !testing::Test::HasFailure(); ++i) {
      const auto which = static_cast<size_t>(i < p.kinds ? i : dice.below(p.kinds));
      const bool is_other_plan = dice.one_in(2);
      pool[which]->run(ops, is_other_plan, p.each_time);
      if (session.rank() == Rank{0}) others += is_other_plan;
    }
  };
  const auto outcomes = run_thread_cluster(p.layout, options, body, [&](Rank rank, Options& own) {
    use_device_of_node(node_of(p.layout, rank.value), own);
  });
  EXPECT_EQ(first_error(outcomes), "");
  EXPECT_GT(others, p.calls / 4);
  std::printf("%lld calls of %d kinds over %s, --seed=%llu\n", static_cast<long long>(p.calls), p.kinds,
              network_text(options).c_str(), static_cast<unsigned long long>(soak_run().seed));
}

TEST(OneCommunicatorSoak, CallsOfAllOpsFusedAndNotAreBitwiseEqualEachTime) {
  if (soak_run().is_rdma) return run_pool(Ops{}, {.calls = calls()}, soak_networks()[0]);
  Options options = test_options();
  options.transport = "emulated";
  options.emulated_personality = "srd";
  run_pool(Ops{}, {.calls = calls()}, options);
}

// Routes of every skew, experts anywhere, rows counted first and not, under delays: every row with its origin and offsets,
// each time.
TEST(OneCommunicatorSoak, MoeCallsOfManyKindsAreRightAndBitwiseEqualEachTime) {
  if (soak_run().is_rdma) GTEST_SKIP() << "among all ops there";
  Pool pool{.calls = calls() / 10, .each_time = true};
  if (!soak_run().is_long) pool.calls = pool.kinds = 15;
  for (const Layout& layout : soak_run().is_long ? std::vector<Layout>{{2, 2}, {1, 3}} : std::vector<Layout>{{2, 2}}) {
    pool.layout = layout;
    Options options = test_options();
    options.transport = "emulated";
    options.emulated_personality = "srd";
    options.test_delay_us = 50;
    run_pool(OpTypes<moe_dispatch::Op>{}, pool, options);
  }
}

// Over devices that send packets and completions in any order, with now and then a full queue.
TEST(OneCommunicatorSoak, CallsOverSrdAreToo) {
  if (soak_run().is_rdma) GTEST_SKIP() << "this run is over rc";
  if (!soak_run().is_long) GTEST_SKIP() << "SrdCalls (tests/srd) has ten thousand";
  Options options = test_options();
  options.transport = "srd";
  options.verbs_library = options.efa_library = FakeVerbs::library();
  const int64_t overtaken = FakeVerbs::count("overtaken");
  FakeVerbs::set("packet_bytes=512,enomem_every=50,seed=" + std::to_string(soak_run().seed));
  run_pool(Ops{}, {.calls = calls()}, options);
  FakeVerbs::set("packet_bytes=8192,enomem_every=0,seed=1");
  EXPECT_GT(FakeVerbs::count("overtaken") - overtaken, calls() / 10);
  EXPECT_EQ(FakeVerbs::count("overflows"), 0);
  EXPECT_EQ(FakeVerbs::held(), 0);
}

}  // namespace
}  // namespace tilewire

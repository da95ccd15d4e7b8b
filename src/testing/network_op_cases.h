// What calls of an op have to do over any network, faults of it too: a suite that each network instantiates, where its
// tests run. Ranks are four threads, 2+2; `adjust` changes a rank's options before it joins.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "testing/op_test_support.h"

namespace tilewire {

// OpTypes<A, B> -> testing::Types<A, B>, and the names of their tests.
template <class T>
struct TestTypes;
template <class... Op>
struct TestTypes<OpTypes<Op...>> {
  using Types = ::testing::Types<Op...>;
};

struct OpName {
  template <class Op>
  static std::string GetName(int) {
    return Op::kName;
  }
};

using AdjustOptions = std::function<void(Rank, Options&)>;

// The same, with a fault script on some ranks.
inline AdjustOptions with_fault(const AdjustOptions& adjust, const std::string& fault,
                                const std::vector<int32_t>& ranks = {0, 1, 2, 3}) {
  return [=](Rank rank, Options& options) {
    if (adjust) adjust(rank, options);
    if (std::find(ranks.begin(), ranks.end(), rank.value) != ranks.end()) options.fault = fault;
  };
}

template <class Op>
std::vector<RankOutcome> run_good_calls(const Options& options, int times, const AdjustOptions& adjust) {
  return run_faulty_cluster(
      {2, 2}, options,
      [&](Session& session) {
        OpCalls<Op> op(session);
        run_good(op, session.rank(), times);
      },
      adjust);
}

// Calls of different sizes, one after the other.
template <class Op>
std::vector<RankOutcome> run_calls_of_all_sizes(const Options& options, const AdjustOptions& adjust = {}) {
  using Traits = OpTestTraits<Op>;
  return run_faulty_cluster(
      {2, 2}, options,
      [](Session& session) {
        OpCalls<Op> op(session);
        run_good(op, session.rank());
        auto busy = Traits::busy(session.rank());
        op.run(busy.arguments());
        busy.check();
        auto other = Traits::other(session.rank());
        op.run(other.arguments());
        other.check();
      },
      adjust);
}

// One op on a network, which is a struct with
//   static Options options()
//   static void adjust(Rank, Options&)
template <class Network, class TestedOp>
struct OnNetwork : Network {
  using Op = TestedOp;
  static constexpr const char* kName = Op::kName;
};

// OnNetworkTypes<Network, OpTypes<A, B>> -> testing::Types<OnNetwork<Network, A>, OnNetwork<Network, B>>.
template <class Network, class List>
struct OnNetworkTypes;
template <class Network, class... Op>
struct OnNetworkTypes<Network, OpTypes<Op...>> {
  using Types = ::testing::Types<OnNetwork<Network, Op>...>;
};

template <class Of>
class NetworkFaults : public ::testing::Test {
 protected:
  using Op = typename Of::Op;

  // Calls over a network with that fault on some ranks, which has to come.
  static std::vector<RankOutcome> run_good(int times, const std::string& fault,
                                           const std::vector<int32_t>& ranks = {0, 1, 2, 3}) {
    Options options = Of::options();
    // A failed request to a rank that has said that it is done is an error behind death_s (docs/decisions/0080): no wait for
    // what it stops may expire first.
    options.deadline_s = std::max(options.deadline_s, 3 * options.death_s);
    return run_good_calls<Op>(options, times, with_fault(Of::adjust, fault, ranks));
  }
};
TYPED_TEST_SUITE_P(NetworkFaults);

TYPED_TEST_P(NetworkFaults, AFailedRequestEndsTheCallOnAllRanks) {
  expect_everywhere(TestFixture::run_good(50, "fail:data=20", {2}), ErrorKind::aborted, {"rank 2"});
}

TYPED_TEST_P(NetworkFaults, AProxyThreadThatDiesEndsTheCallOnAllRanks) {
  expect_everywhere(TestFixture::run_good(200, "die:after=20", {0}), ErrorKind::aborted, {"rank 0"});
}

TYPED_TEST_P(NetworkFaults, AStallOnlyDelays) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(first_error(TestFixture::run_good(4, "stall:after=10,ms=200")), "");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200)) << "the fault was too short";
}

TYPED_TEST_P(NetworkFaults, ATransportThatTakesNothingForAWhileOnlyDelays) {
  using Op = typename TypeParam::Op;
  Options options = TypeParam::options();
  options.ring_entries = 16;
  const auto outcomes = run_faulty_cluster(
      {2, 2}, options,
      [](Session& session) {
        OpCalls<Op> op(session);
        for (int i = 0; i < 3; ++i) {
          auto checker = OpTestTraits<Op>::busy(session.rank());
          op.run(checker.arguments());
          checker.check();
        }
      },
      with_fault(TypeParam::adjust, "full:after=5,times=100"));
  EXPECT_EQ(first_error(outcomes), "");
}

REGISTER_TYPED_TEST_SUITE_P(NetworkFaults, AFailedRequestEndsTheCallOnAllRanks,
                            AProxyThreadThatDiesEndsTheCallOnAllRanks, AStallOnlyDelays,
                            ATransportThatTakesNothingForAWhileOnlyDelays);

}  // namespace tilewire

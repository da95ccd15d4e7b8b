// What calls of an op have to do over any network, as test bodies: for the emulated one, and for those that need a place
// of their own. Ranks are four threads, 2+2; `adjust` changes a rank's options before it joins.
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

template <class Op>
void expect_that_a_failed_request_ends_the_call(const Options& options, const AdjustOptions& adjust = {}) {
  const auto outcomes = run_good_calls<Op>(options, 50, with_fault(adjust, "fail:data=20", {2}));
  expect_everywhere(outcomes, ErrorKind::aborted, {"rank 2"});
}

template <class Op>
void expect_that_a_dead_proxy_ends_the_call(const Options& options, const AdjustOptions& adjust = {}) {
  const auto outcomes = run_good_calls<Op>(options, 200, with_fault(adjust, "die:after=20", {0}));
  expect_everywhere(outcomes, ErrorKind::aborted, {"rank 0"});
}

template <class Op>
void expect_that_a_stall_only_delays(const Options& options, const AdjustOptions& adjust = {}) {
  const auto begin = std::chrono::steady_clock::now();
  const auto outcomes = run_good_calls<Op>(options, 4, with_fault(adjust, "stall:after=10,ms=200"));
  EXPECT_EQ(first_error(outcomes), "");
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(200)) << "the fault was too short";
}

template <class Op>
void expect_that_a_full_queue_only_delays(Options options, const AdjustOptions& adjust = {}) {
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
      with_fault(adjust, "full:after=5,times=100"));
  EXPECT_EQ(first_error(outcomes), "");
}

}  // namespace tilewire

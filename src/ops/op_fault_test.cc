// Bad input and bad luck on thread ranks: each gives a named error on every rank that survives, nothing hangs. The
// build compiles this once for each op of the list; it knows of an op what OpTestTraits says. What is an op's own is in
// its fault_test.cc. Killed processes are tests of the Python front.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "testing/given_time.h"
#include "testing/network_op_cases.h"

#ifndef TILEWIRE_OP
#define TILEWIRE_OP ag_gemm::Op
#define TILEWIRE_OP_FIXTURE "ops/ag_gemm/call_fixture.h"
#endif
#include TILEWIRE_OP_FIXTURE

namespace tilewire {
namespace {

template <class Op>
class OpFault : public testing::Test {
 protected:
  using Traits = OpTestTraits<Op>;
};
TYPED_TEST_SUITE(OpFault, testing::Types<TILEWIRE_OP>, OpName);

TYPED_TEST(OpFault, RanksThatDisagreeAllHearBothTextsHoweverMuchWasAgreedBefore) {
  using Fault = OpFault<TypeParam>;
  for (const bool is_first_call : {true, false}) {
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      OpCalls<TypeParam> op(session);
      if (!is_first_call) run_good(op, session.rank());
      const bool is_other = session.rank() == Rank{2};
      auto checker = is_other ? Fault::Traits::other(session.rank()) : Fault::Traits::small(session.rank());
      op.run(checker.arguments());
    });
    expect_everywhere(outcomes, ErrorKind::mismatch,
                      {"not the same on all ranks", Fault::Traits::kText, Fault::Traits::kOtherText, "rank 2"});
  }
}

// The call ends before anything moves, yet the results exist. A rank that hears of it before it has asked for them has
// none.
TYPED_TEST(OpFault, ResultsAreNaNWhenRanksDisagreeOrAnotherOneRefuses) {
  using Fault = OpFault<TypeParam>;
  for (const bool disagrees : {true, false}) {
    std::vector<int> was_asked(4, 0), is_nan(4, 0);
    std::atomic<int> asked{0};
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      const size_t me = static_cast<size_t>(session.rank().value);
      OpCalls<TypeParam> op(session);
      auto checker = disagrees && me == 1 ? Fault::Traits::other(session.rank()) : Fault::Traits::small(session.rank());
      for (OwnedMatrix& result : checker.results()) result.fill(1);
      auto args = checker.arguments();
      args.make_results = [&, make = args.make_results](const auto& problem) {
        was_asked[me] = 1;
        ++asked;
        return make(problem);
      };
      if (!disagrees && me == 1) {
        Fault::Traits::spoil(args);
        EXPECT_TRUE(comes_true([&] { return asked == 3; })) << "the others are in the call by then";
      }
      try {
        op.run(args);
      } catch (const Error&) {
        const auto& results = checker.results();
        is_nan[me] = std::all_of(results.begin(), results.end(), is_all_nan);
        throw;
      }
    });
    EXPECT_NE(first_error(outcomes), "");
    EXPECT_EQ(is_nan, was_asked) << disagrees;
    EXPECT_GT(std::count(was_asked.begin(), was_asked.end(), 1), 1) << disagrees;
    EXPECT_TRUE(disagrees || was_asked[1] == 0);
  }
}

// The others wait for what it brings, and every element is right.
TYPED_TEST(OpFault, ARankThatIsLateInAnyOneOfItsRolesChangesNothing) {
  using Adjusted = AdjustedOp<TypeParam>;
  using Fault = OpFault<TypeParam>;
  for (const auto make : {&Fault::Traits::small, &Fault::Traits::other}) {
    const auto run_times = [&](size_t times) {
      const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
        OpCalls<Adjusted> op(session);
        for (size_t i = 0; i < times; ++i) {
          auto checker = make(session.rank());
          op.run(checker.arguments());
          checker.check();
        }
      });
      EXPECT_EQ(first_error(outcomes), "");
    };
    std::mutex mutex;
    std::set<RankRole> seen;
    Adjusted::adjust = [&](const CallFrame& frame, Call::Program& program) {
      const std::lock_guard lock(mutex);
      for (const Call::RoleBody& body : program.roles) seen.insert({frame.me.value, body.name.name});
    };
    run_times(1);
    ASSERT_GE(seen.size(), 4u * 3);
    const std::vector<RankRole> roles(seen.begin(), seen.end());
    Adjusted::adjust = [&](const CallFrame& frame, Call::Program& program) {
      delay_role(roles[(frame.epoch - 1) % roles.size()], std::chrono::milliseconds(15), frame, program);
    };
    run_times(roles.size());
  }
}

TYPED_TEST(OpFault, ACallOnADeadCommunicatorAsksForNoResultsAndTouchesNone) {
  using Fault = OpFault<TypeParam>;
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
    OpCalls<TypeParam> op(session);
    auto first = Fault::Traits::small(session.rank());
    auto bad = first.arguments();
    if (session.rank() == Rank{1}) Fault::Traits::spoil(bad);
    EXPECT_THROW(op.run(bad), Error);
    while (!session.is_dead()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto second = Fault::Traits::small(session.rank());
    std::vector<std::vector<std::byte>> before;
    for (OwnedMatrix& result : second.results()) {
      result.fill(1);
      before.push_back(result.bytes());
    }
    auto args = second.arguments();
    bool was_asked = false;
    args.make_results = [&, make = args.make_results](const auto& problem) {
      was_asked = true;
      return make(problem);
    };
    EXPECT_THROW(op.run(args), Error);
    EXPECT_FALSE(was_asked);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(second.results()[i].bytes(), before[i]);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TYPED_TEST(OpFault, OneRankThatRefusesTellsTheOthersWhy) {
  using Fault = OpFault<TypeParam>;
  const auto outcomes = run_spoiled<TypeParam>([](Rank r, auto& args) {
    if (r == Rank{1}) Fault::Traits::spoil(args);
  });
  expect_everywhere(outcomes, {Fault::Traits::kSpoilText});
  EXPECT_EQ(outcomes[1].kind, ErrorKind::invalid_argument);
}

TYPED_TEST(OpFault, ACallThatAllRanksRefuseLeavesTheCommunicatorUsable) {
  using Fault = OpFault<TypeParam>;
  constexpr bool kExchanges = requires(typename TypeParam::Arguments & args) { Fault::Traits::exchange(args); };
  for (const bool after_exchange : {false, true}) {
    if (after_exchange && !kExchanges) continue;
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      OpCalls<TypeParam> op(session);
      for (int i = 0; i < 3; ++i) {
        auto bad = Fault::Traits::small(session.rank());
        auto args = bad.arguments();
        if (after_exchange) {
          if constexpr (kExchanges) Fault::Traits::exchange(args);
          Fault::Traits::alias_result(args);
        } else {
          Fault::Traits::spoil(args);
        }
        try {
          op.run(args);
          ADD_FAILURE() << "not refused";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
        }
        run_good(op, session.rank());
      }
    });
    EXPECT_EQ(first_error(outcomes), "") << after_exchange;
  }
}

// One rank refuses before the exchange, another one would behind it.
TYPED_TEST(OpFault, ARefusalBeforeCountsAreExchangedIsHeardByAllAndDoesNoHarm) {
  using Fault = OpFault<TypeParam>;
  if constexpr (requires(typename TypeParam::Arguments & args) { Fault::Traits::exchange(args); }) {
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      OpCalls<TypeParam> op(session);
      for (int i = 0; i < 3; ++i) {
        auto bad = Fault::Traits::small(session.rank());
        auto args = bad.arguments();
        Fault::Traits::exchange(args);
        if (session.rank() == Rank{1}) Fault::Traits::spoil(args);
        if (session.rank() == Rank{3}) Fault::Traits::alias_result(args);
        try {
          op.run(args);
          ADD_FAILURE() << "not refused";
        } catch (const Error& error) {
          const bool is_own = session.rank() == Rank{1};
          EXPECT_EQ(error.kind(), is_own ? ErrorKind::invalid_argument : ErrorKind::refused) << error.what();
          EXPECT_NE(std::string(error.what()).find(Fault::Traits::kSpoilText), std::string::npos) << error.what();
        }
        run_good(op, session.rank());
      }
    });
    EXPECT_EQ(first_error(outcomes), "");
  }
}

TYPED_TEST(OpFault, AResultThatAliasesAnInputIsRefusedByName) {
  using Fault = OpFault<TypeParam>;
  const auto outcomes = run_spoiled<TypeParam>([](Rank r, auto& args) {
    if (r == Rank{3}) Fault::Traits::alias_result(args);
  });
  expect_everywhere(outcomes, {Fault::Traits::kAliasText});
}

TYPED_TEST(OpFault, NoMemoryForTheResultsIsAResourceErrorWithItsBytes) {
  using Fault = OpFault<TypeParam>;
  int64_t bytes = 0;
  const auto outcomes = run_spoiled<TypeParam>([&](Rank r, auto& args) {
    if (r != Rank{2}) return;
    using Results = decltype(args.make_results(typename TypeParam::Problem{}));
    args.make_results = [&bytes, r](const auto& problem) -> Results {
      bytes = TypeParam::result_bytes(problem, r);
      throw std::bad_alloc();
    };
  });
  ASSERT_GT(bytes, 0);
  int64_t result_bytes = 0;
  auto checker = Fault::Traits::small(Rank{2});
  for (const OwnedMatrix& m : checker.results()) result_bytes += static_cast<int64_t>(m.bytes().size());
  EXPECT_EQ(bytes, result_bytes);
  EXPECT_EQ(outcomes[2].kind, ErrorKind::resource) << outcomes[2].error;
  expect_everywhere(outcomes, {std::to_string(bytes) + " bytes were asked for"});
}

TYPED_TEST(OpFault, ARankThatNeverCallsIsADeadlineThatNamesTheWord) {
  using Fault = OpFault<TypeParam>;
  Options options = test_options();
  options.deadline_s = 2;  // the good call has it too, on a machine with much else to do
  std::vector<int> is_nan(4, 0);
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    OpCalls<TypeParam> op(session);
    run_good(op, session.rank());
    auto second = Fault::Traits::small(session.rank());
    for (OwnedMatrix& result : second.results()) result.fill(1);
    if (session.rank() == Rank{3}) {
      for (int i = 0; i < 3000 && !session.is_dead(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      session.throw_if_dead();
      return;
    }
    try {
      op.run(second.arguments());
    } catch (const Error&) {
      const auto& results = second.results();
      is_nan[static_cast<size_t>(session.rank().value)] = std::all_of(results.begin(), results.end(), is_all_nan);
      throw;
    }
  });
  expect_everywhere(outcomes, ErrorKind::deadline, {"rank 3", "waited 2 s for", "epoch 2", "call 2"});
  for (size_t r = 0; r < 3; ++r) EXPECT_TRUE(is_nan[r]) << "rank " << r << " kept half a result";
}

struct EmulatedNetwork {
  static Options options() { return quick_options(); }
  static void adjust(Rank, Options&) {}
};
using OpOverEmulated = OnNetwork<EmulatedNetwork, TILEWIRE_OP>;
INSTANTIATE_TYPED_TEST_SUITE_P(Emulated, NetworkFaults, testing::Types<OpOverEmulated>, OpName);

TYPED_TEST(OpFault, ARankThatLeavesBetweenCallsIsNamedToThoseWhoWaitForIt) {
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [](Session& session) {
    OpCalls<TypeParam> op(session);
    run_good(op, session.rank());
    if (session.rank() != Rank{1}) run_good(op, session.rank());
  });
  EXPECT_EQ(outcomes[1].error, "");
  for (const size_t r : {0, 2, 3}) {
    EXPECT_EQ(outcomes[r].kind, ErrorKind::peer_lost) << outcomes[r].error;
    EXPECT_NE(outcomes[r].error.find("rank 1"), std::string::npos) << outcomes[r].error;
  }
}

TYPED_TEST(OpFault, AnExceptionInOneRanksOwnCodeReachesTheOthersWithItsText) {
  const auto outcomes = run_spoiled<TypeParam>([](Rank r, auto& args) {
    using Results = decltype(args.make_results(typename TypeParam::Problem{}));
    if (r == Rank{2}) args.make_results = [](const auto&) -> Results { throw std::runtime_error("the user's own"); };
  });
  expect_everywhere(outcomes, {"the user's own"});
  EXPECT_NE(outcomes[0].error.find("rank 2"), std::string::npos) << outcomes[0].error;
}

// Rank 1 has ended a call and hears of an abort with the call's words to rank 3 still in its proxy. Where rank 0 has left,
// nobody tells rank 3 of it, and without these words it would wait in a call that has ended for its deadline.
TYPED_TEST(OpFault, TheEndOfACommunicatorDoesNotTakeTheWordsOfACallThatEndedBefore) {
  Epoch seen = 0;
  run_thread_cluster(
      {2, 2}, quick_options(),
      [&seen](Session& session) {
        OpCalls<TypeParam> op(session);
        try {
          run_good(op, session.rank());
        } catch (const Error&) {  // of who hears of the abort before its call has ended
          if (session.rank() == Rank{1}) throw;
        }
        if (session.rank() == Rank{1}) session.control().send_abort(ErrorKind::aborted, "the end");
        if (session.rank() != Rank{3}) return;
        const ArenaLayout& layout = session.arena().layout();
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (seen == 0 && std::chrono::steady_clock::now() < limit) {
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          seen = load_word(session.arena().base(), layout, layout.flags.done(Rank{1}));
        }
      },
      [](Rank r, Options& o) {
        if (r == Rank{1}) o.fault = "delay:us=250000";
      });
  EXPECT_EQ(seen, 1u);
}

TYPED_TEST(OpFault, ADeadCommunicatorRefusesFurtherCallsAndANewOneWorks) {
  using Fault = OpFault<TypeParam>;
  for (int round = 0; round < 2; ++round) {
    const auto outcomes = run_spoiled<TypeParam>([](Rank r, auto& args) {
      if (r == Rank{0}) Fault::Traits::spoil(args);
    });
    EXPECT_NE(first_error(outcomes), "");
  }
  EXPECT_EQ(first_error(run_good_calls<TypeParam>(quick_options(), 1, {})), "");
}

}  // namespace
}  // namespace tilewire

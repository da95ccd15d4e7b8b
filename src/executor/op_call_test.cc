// What all ops do alike in a call, shown on one that moves nothing: who hears of a refusal, and what of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "executor/op_program.h"
#include "testing/op_test_support.h"
#include "testing/toy_op.h"

namespace tilewire {
namespace {

// Each member that an op must have, taken away or given another type.
struct NoName : toy::Op {
 private:
  static constexpr int kName = 0;
};
struct NoCheck : toy::Op {
  static void check() = delete;
};
struct NoMakeProblem : toy::Op {
  static void make_problem() = delete;
};
struct NoMakePlan : toy::Op {
  static void make_plan() = delete;
};
struct NoMakeTables : toy::Op {
  static void make_tables() = delete;
};
struct NoMakeOperands : toy::Op {
  static void make_operands() = delete;
};
struct NoResultBytes : toy::Op {
  static void result_bytes() = delete;
};
struct NoResults : toy::Op {
  static void results() = delete;
};
struct NoAgreed : toy::Op {
  static void agreed() = delete;
};
struct NoMakeSchedule : toy::Op {
  static void make_schedule() = delete;
};
struct NoProgram : toy::Op {
  static void program() = delete;
};
struct NoReport : toy::Op {
  static void report() = delete;
};
struct AgreedThatIsAText : toy::Op {
  static std::string agreed(const Problem& problem, const Plan&) { return problem.text(); }
};
struct PlanWithoutMemory : toy::Op {
  struct Plan {
    toy::Choice choice;
    double predicted_s = 0;
  };
};
struct ProblemWithoutText : toy::Op {
  struct Problem {};
};

template <class... Wrong>
constexpr int count_accepted() {
  return (0 + ... + (OpDescription<Wrong> ? 1 : 0));
}
static_assert(OpDescription<toy::Op>);
static_assert(count_accepted<int, NoName, NoCheck, NoMakeProblem, NoMakePlan, NoMakeTables, NoMakeOperands,
                             NoResultBytes, NoResults, NoAgreed, NoMakeSchedule, NoProgram, NoReport, AgreedThatIsAText,
                             PlanWithoutMemory, ProblemWithoutText>() == 0);

struct OtherToy : toy::Op {
  static constexpr const char* kName = "other_toy";
};

TEST(OpObjects, TheOpsOfAListTakeTurnsOnOneCommunicator) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [](Session& session) {
    OpObjects<OpTypes<toy::Op, OtherToy>> ops(session);
    for (int64_t size = 3; size < 6; ++size) {
      ops.get<toy::Op>().run({.size = size});
      ops.get<OtherToy>().run({.size = size});
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(OpObjects, RanksThatTakeDifferentOpsOfAListHearOfBoth) {
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [](Session& session) {
    OpObjects<OpTypes<toy::Op, OtherToy>> ops(session);
    session.rank() == Rank{0} ? ops.get<toy::Op>().run({.size = 4}) : ops.get<OtherToy>().run({.size = 4});
  });
  expect_everywhere(outcomes, ErrorKind::mismatch, {"toy of", "other_toy of"});
}

// Both ops say the same of themselves, so only the name that is put before it tells them apart.
TEST(OpCalls, TwoOpsWithTheSameTextAreAMismatchThatNamesBoth) {
  for (const bool is_known_before : {false, true}) {
    const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
      OpCalls<toy::Op> toy(session);
      OpCalls<OtherToy> other(session);
      if (is_known_before) {
        toy.run({.size = 5});
        other.run({.size = 5});
      }
      if (session.rank() == Rank{3}) {
        other.run({.size = 5});
      } else {
        toy.run({.size = 5});
      }
    });
    expect_everywhere(outcomes, ErrorKind::mismatch, {"rank 3: other_toy of size 5", ": toy of size 5"});
  }
}

// As when ranks bring different numbers of rows and do not say so. Known before: to none, to the others, to all.
TEST(OpCalls, RanksThatDisagreeHearBothTextsAndWhatToDoHoweverMuchWasAgreedBefore) {
  for (const std::vector<int64_t>& before : {std::vector<int64_t>{}, {5}, {5, 7}}) {
    const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
      OpCalls<toy::Op> toy(session);
      for (const int64_t size : before) toy.run({.size = size});
      toy.run({.size = session.rank() == Rank{3} ? 7 : 5});
    });
    const std::string call = "call " + std::to_string(before.size() + 1);
    expect_everywhere(outcomes, ErrorKind::mismatch,
                      {call + " is not the same on all ranks: rank ", ": toy of size 5", "rank 3: toy of size 7",
                       "make the same calls in the same order"});
  }
}

struct AdvisingToy : toy::Op {
  static constexpr const char* kMismatchAdvice = "ask the toy maker";
};

TEST(OpCalls, AnOpsOwnAdviceStandsInTheErrorOfRanksThatDisagree) {
  for (const bool is_exchanged : {false, true}) {
    const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
      OpCalls<AdvisingToy> toy(session);
      if (is_exchanged) toy.run({.size = 1, .exchanges = true});
      toy.run({.size = session.rank() == Rank{3} ? 7 : 5});
    });
    expect_everywhere(outcomes, ErrorKind::mismatch, {"ask the toy maker"});
  }
}

struct CountedToy : toy::Op {
  static inline std::atomic<int> plans{0};
  static Plan make_plan(const Problem& problem, const std::string& json, const PlanContext& context) {
    ++plans;
    Plan plan = toy::Op::make_plan(problem, json, context);
    plan.choice.number = 3;
    return plan;
  }
};

TEST(OpCalls, AHandlesCallsTakeThePlanThatItsMakingHasMade) {
  CountedToy::plans = 0;
  const auto outcomes = run_thread_cluster({2}, test_options(), [&](Session& session) {
    OpCalls<CountedToy> toy(session);
    const auto plan = toy.agree({5}, "");
    for (int i = 0; i < 3; ++i) toy.run({.size = 5, .plan_json = to_json(plan.choice)});
  });
  EXPECT_EQ(first_error(outcomes), "");
  EXPECT_EQ(CountedToy::plans, 2) << "one a rank";
}

TEST(OpCalls, ARankThatMakesAHandleWhereTheOthersCallIsNotWaitedForWhetherTheShapeIsNewOrNot) {
  for (const int64_t size : {5, 6}) {
    const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
      OpCalls<toy::Op> toy(session);
      toy.run({.size = 5});
      session.rank() == Rank{0} ? void(toy.run({.size = size})) : void(toy.agree({size}, ""));
      toy.run({.size = 7});
    });
    expect_everywhere(outcomes, ErrorKind::mismatch, {"rank 0", "rank 1", "'handle'", "toy of"});
  }
}

TEST(OpCalls, AgreedTextsDoNotPileUpAndTheirCallsGoOn) {
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
    OpCalls<toy::Op> toy(session);
    size_t most = 0;
    for (size_t size = 0; size < OpCalls<toy::Op>::kMostAgreed + 5; ++size) {
      toy.agree({static_cast<int64_t>(size)}, "");
      most = std::max(most, toy.agreed_texts());
    }
    EXPECT_EQ(most, OpCalls<toy::Op>::kMostAgreed);
    EXPECT_EQ(toy.agreed_texts(), 5u);
    for (int64_t size = 0; size < 3; ++size) toy.run({.size = size});
  });
  EXPECT_EQ(first_error(outcomes), "");
}

std::vector<int64_t> sizes_made;  // of one rank

// Tables of a quarter of what is kept at most.
struct LargeToy : toy::Op {
  struct Tables : toy::Tables {
    explicit Tables(const toy::Tables& tables) : toy::Tables(tables) {}
    int64_t bytes() const { return OpCalls<LargeToy>::kMostPreparedBytes / 4; }
  };
  static Tables make_tables(const Problem& problem, const Plan& plan, const PlanContext& context) {
    sizes_made.push_back(problem.size);
    return Tables(toy::Op::make_tables(problem, plan, context));
  }
  static Schedule make_schedule(const Tables& tables, Epoch epoch, const Arguments& arguments, Session& session) {
    return toy::Op::make_schedule(tables, epoch, arguments, session);
  }
};

TEST(OpCalls, WhatIsReadyIsKeptUpToSoManyBytes) {
  sizes_made.clear();
  const auto outcomes = run_thread_cluster({1}, test_options(), [&](Session& session) {
    OpCalls<LargeToy> toy(session);
    std::vector<size_t> names;
    for (const int64_t size : {1, 2, 3, 4, 1, 5, 1, 3, 2, 4}) {
      toy.run({.size = size});
      toy.run({.size = size});
      names.push_back(toy.prepared_names());
    }
    // Two names each: the fifth one finds no room, and what was not used for the longest time goes.
    EXPECT_EQ(names, (std::vector<size_t>{2, 4, 6, 8, 8, 8, 8, 8, 8, 8}));
  });
  EXPECT_EQ(first_error(outcomes), "");
  EXPECT_EQ(sizes_made, (std::vector<int64_t>{1, 2, 3, 4, 5, 2, 4}));
}

TEST(OpProgram, ASecondDrainRoleIsAnErrorThatNamesIt) {
  Call::Program program;
  const auto start = [](RoleContext&) { return [](const CallWork&) { return TraceEvent{}; }; };
  const AgentPlace place{.role = "drain again", .stage = kDrainStage};
  add_role(program, place, BeginRole(CallFrame{}), start);
  try {
    add_role(program, place, BeginRole(CallFrame{}), start);
    ADD_FAILURE() << "not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("drain again"), std::string::npos) << error.what();
  }
}

// All ranks refuse, each in its own way and at its own time. The next calls must find a communicator that lives.
TEST(OpCalls, ACallThatAllRanksRefuseAfterAnExchangeEndsByNameAndTheNextOneWorks) {
  for (int round = 0; round < 6; ++round) {
    const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
      OpCalls<toy::Op> toy(session);
      const int32_t me = session.rank().value;
      for (int call = 0; call < 3; ++call) {
        const toy::Arguments bad{.size = me, .exchanges = true, .make_result = [&](int64_t size) -> MatrixView {
                                   EXPECT_EQ(size, 0 + 1 + 2 + 3);
                                   // Some hear of the others' refusals before their own, some after.
                                   std::this_thread::sleep_for(std::chrono::milliseconds((me + round) % 4 * 15));
                                   throw Error(ErrorKind::invalid_argument, {.what = "bad out"});
                                 }};
        try {
          toy.run(bad);
          ADD_FAILURE() << "not refused on rank " << me;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
          EXPECT_NE(std::string(error.what()).find("bad out"), std::string::npos) << error.what();
        }
        toy.run({.size = 3 + call, .exchanges = call == 1});
      }
    });
    EXPECT_EQ(first_error(outcomes), "") << "round " << round;
  }
}

// Some ranks refuse before the exchange, some would refuse behind it, one not at all: the call is skipped everywhere,
// all hear of the lowest rank that refused before, and the next calls find a communicator that lives.
TEST(OpCalls, ARefusalBeforeAnExchangeIsHeardInItAndTheNextCallWorks) {
  for (const std::vector<int32_t>& early : {std::vector<int32_t>{2}, {1, 3}, {0, 1, 2, 3}}) {
    const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
      OpCalls<toy::Op> toy(session);
      const int32_t me = session.rank().value;
      const bool is_early = std::find(early.begin(), early.end(), me) != early.end();
      const std::string own = "bad input of rank " + std::to_string(me);
      for (int round = 0; round < 3; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds((me + round) % 3 * 5));
        toy::Arguments bad{.size = me, .exchanges = true};
        if (is_early) bad.check = [&] { throw Error(ErrorKind::invalid_argument, {.what = own}); };
        bad.make_result = [&](int64_t) -> MatrixView {
          ADD_FAILURE() << "rank " << me << " went on behind the exchange";
          return {};
        };
        try {
          toy.run(bad);
          ADD_FAILURE() << "not refused on rank " << me;
        } catch (const Error& error) {
          const std::string told = "rank " + std::to_string(early[0]) + " refused call " +
                                   std::to_string(2 * round + 1) + " that rank " + std::to_string(me) +
                                   " is in: bad input of rank " + std::to_string(early[0]);
          EXPECT_EQ(error.kind(), is_early ? ErrorKind::invalid_argument : ErrorKind::refused) << error.what();
          EXPECT_NE(std::string(error.what()).find(is_early ? own : told), std::string::npos) << error.what();
        }
        toy.run({.size = 3 + round, .exchanges = round == 1});
      }
    });
    EXPECT_EQ(first_error(outcomes), "") << early.size() << " ranks refuse";
  }
}

// The others bring a list: one names the disagreement, and the rank that refuses says what it refused.
TEST(OpCalls, ARefusalInAnExchangeThatTheOthersDoNotMakeEndsByName) {
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
    OpCalls<toy::Op> toy(session);
    toy::Arguments arguments{.size = 4};
    if (session.rank() == Rank{1}) {
      arguments.exchanges = true;
      arguments.check = [] { throw Error(ErrorKind::invalid_argument, {.what = "bad input"}); };
    }
    toy.run(arguments);
  });
  expect_everywhere(outcomes, {"bad input"});
  EXPECT_EQ(outcomes[0].kind, ErrorKind::mismatch) << outcomes[0].error;
  EXPECT_EQ(outcomes[1].kind, ErrorKind::invalid_argument) << outcomes[1].error;
}

// One rank has no reason to refuse and goes on: it must not wait for the others.
TEST(OpCalls, ARankThatGoesOnAfterAnExchangeHearsThatTheOthersRefused) {
  for (const bool is_new_shape : {true, false}) {
    for (const int64_t delay_ms : {0, 50}) {
      const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
        OpCalls<toy::Op> toy(session);
        if (!is_new_shape) toy.run({.size = 4});
        toy::Arguments arguments{.size = 1, .exchanges = true};
        const bool refuses = session.rank() != Rank{2};
        arguments.make_result = [&](int64_t) -> MatrixView {
          if (!refuses) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
          if (refuses) throw Error(ErrorKind::invalid_argument, {.what = "bad out"});
          return {};
        };
        toy.run(arguments);
      });
      for (int32_t r = 0; r < 4; ++r) {
        EXPECT_EQ(outcomes[r].kind, r == 2 ? ErrorKind::refused : ErrorKind::invalid_argument) << outcomes[r].error;
        EXPECT_NE(outcomes[r].error.find("bad out"), std::string::npos) << outcomes[r].error;
      }
    }
  }
}

// All ranks make the same mistake, and the first has left because of it before the others come to theirs.
TEST(OpCalls, AMistakeIsHeardByWhoMadeItAlsoWhenAnotherRankHasEndedTheCommunicator) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<toy::Op> toy(session);
    toy::Arguments arguments{.size = 4};
    arguments.check = [] { throw Error(ErrorKind::invalid_argument, {.what = "bad input"}); };
    if (session.rank() == Rank{0}) session.tell_left_by_exception();
    while (!session.is_dead()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (session.rank() == Rank{3}) arguments.check = {};
    toy.run(arguments);
  });
  for (int32_t r = 0; r < 4; ++r) {
    EXPECT_EQ(outcomes[r].kind, r == 3 ? ErrorKind::aborted : ErrorKind::invalid_argument) << outcomes[r].error;
  }
}

// A way in which rank 2 can fail before it begins, and what the ranks then read.
struct OwnFailure {
  const char* name;
  toy::Arguments arguments;
  ErrorKind own_kind;  // of an Error; internal where it is none
  std::string text;    // in the error of every rank
};

void expect_refusal(const OwnFailure& failure) {
  SCOPED_TRACE(failure.name);
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    OpCalls<toy::Op> toy(session);
    toy.run({.size = 5});
    toy.run(session.rank() == Rank{2} ? failure.arguments : toy::Arguments{.size = 5});
  });
  for (int32_t r = 0; r < 4; ++r) {
    const RankOutcome& outcome = outcomes[static_cast<size_t>(r)];
    EXPECT_EQ(outcome.kind, r == 2 ? failure.own_kind : ErrorKind::refused) << outcome.error;
    EXPECT_NE(outcome.error.find(failure.text), std::string::npos) << "rank " << r << " says: " << outcome.error;
    EXPECT_TRUE(r == 2 || outcome.error.find("rank 2 refused call 2") != std::string::npos) << outcome.error;
  }
}

TEST(OpCalls, WhatARankLacksMemoryForIsAResourceErrorWithTheBytesThatAllHear) {
  const auto fails_with = [](const auto& exception) { return [exception](int64_t) -> MatrixView { throw exception; }; };
  const std::string bytes = "there is no memory for the results: 5 bytes were asked for";
  expect_refusal({"bad_alloc", {.size = 5, .make_result = fails_with(std::bad_alloc())}, ErrorKind::resource, bytes});
  expect_refusal({"length_error",
                  {.size = 5, .make_result = fails_with(std::length_error("vector"))},
                  ErrorKind::resource,
                  bytes});
  expect_refusal({"bad_alloc before the results",
                  {.size = 5, .check = [] { throw std::bad_alloc(); }},
                  ErrorKind::resource,
                  "no memory to prepare the call"});
  expect_refusal({"arena", {.size = int64_t{1} << 30}, ErrorKind::resource, "1073741824 bytes of each half"});
}

// As where the rows of all are scattered.
struct ScatteringToy : toy::Op {
  static Operands make_operands(const Arguments& arguments, const Problem& problem, Rank me) {
    return {arguments.make_result(problem.size + me.value)};
  }
  static int64_t result_bytes(const Problem& problem, Rank me) { return problem.size + me.value; }
};

TEST(OpCalls, AResultMayBeOfAnotherSizeOnEachRank) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [](Session& session) {
    OpCalls<ScatteringToy> toy(session);
    const int64_t own = 50 + session.rank().value;
    toy::Arguments arguments{.size = 50};
    arguments.make_result = [&](int64_t size) -> MatrixView {
      EXPECT_EQ(size, own);
      throw std::bad_alloc();
    };
    try {
      toy.run(arguments);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::to_string(own) + " bytes"), std::string::npos) << error.what();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(OpCalls, AnExceptionOfTheCallersOwnKeepsItsTypeAndItsTextReachesTheOthers) {
  expect_refusal({"runtime_error",
                  {.size = 5, .make_result = [](int64_t) -> MatrixView { throw std::runtime_error("the user's own"); }},
                  ErrorKind::internal,
                  "the user's own"});
}

TEST(OpCalls, ACallThatAllRanksHaveNoMemoryForLeavesTheCommunicatorUsable) {
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [](Session& session) {
    OpCalls<toy::Op> toy(session);
    for (int round = 0; round < 3; ++round) {
      EXPECT_THROW(toy.run({.size = int64_t{1} << 30}), Error);
      toy.run({.size = 5});
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

}  // namespace
}  // namespace tilewire

// Bad input and bad luck on thread ranks: each gives a named error on every rank that survives, nothing hangs. Killed
// processes are tests of the Python front.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "ops/ag_gemm/call_fixture.h"

namespace tilewire::ag_gemm {
namespace {

const TestCall kCall{.rows = {20, 3, 9, 11}, .k = 16, .cols = {12}};

Options quick_options() {
  Options o = test_options();
  o.deadline_s = 5;
  return o;
}

// Every rank makes one good call, then the one that `spoil` has changed on its rank.
std::vector<RankOutcome> run_spoiled(const Options& options, const std::function<void(Rank, Arguments&)>& spoil) {
  return run_thread_cluster({2, 2}, options, [&](Session& session) {
    Operation op(session);
    CallChecker good(kCall, session.rank().value);
    op.run(good.arguments());
    good.check();
    CallChecker bad(kCall, session.rank().value);
    Arguments args = bad.arguments();
    spoil(session.rank(), args);
    op.run(args);
  });
}

void expect_everywhere(const std::vector<RankOutcome>& outcomes, const std::vector<std::string>& texts) {
  for (size_t r = 0; r < outcomes.size(); ++r) {
    for (const std::string& text : texts) {
      EXPECT_NE(outcomes[r].error.find(text), std::string::npos)
          << "rank " << r << " says: " << outcomes[r].error << "\nwithout: " << text;
    }
  }
}

TEST(AgGemmFault, RanksThatDisagreeOnRowsAllHearBothValues) {
  const auto outcomes = run_spoiled(quick_options(), [](Rank r, Arguments& args) {
    args.rows.counts = r.value == 2 ? std::vector<int64_t>{19, 4, 9, 11} : kCall.rows;
  });
  expect_everywhere(outcomes, {"20, 3, 9, 11", "19, 4, 9, 11", "rank 2"});
  for (const RankOutcome& o : outcomes) EXPECT_EQ(o.kind, ErrorKind::mismatch) << o.error;
}

TEST(AgGemmFault, RanksThatDisagreeOnTheFirstCallAllHearBothValues) {
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [](Session& session) {
    Operation op(session);
    TestCall call = kCall;
    if (session.rank() == Rank{1}) call.k = 24;
    CallChecker checker(call, session.rank().value);
    op.run(checker.arguments());
  });
  expect_everywhere(outcomes, {"K = 16", "K = 24"});
}

bool is_all_nan(const OwnedMatrix& m) {
  for (int64_t r = 0; r < m.view().rows; ++r) {
    for (int64_t c = 0; c < m.view().cols; ++c) {
      if (!std::isnan(m.get(r, c))) return false;
    }
  }
  return true;
}

// The call ends before anything moves, yet the results exist. A rank that hears of it before it has asked for them has
// none.
TEST(AgGemmFault, ResultsAreNaNWhenRanksDisagreeOrAnotherOneRefuses) {
  for (const bool disagrees : {true, false}) {
    std::vector<int> was_asked(4, 0), is_nan(4, 0);
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      const size_t me = static_cast<size_t>(session.rank().value);
      Operation op(session);
      TestCall call = kCall;
      if (disagrees && me == 1) call.k = 24;
      CallChecker checker(call, session.rank().value);
      checker.fill_results(1);
      Arguments args = checker.arguments();
      args.make_results = [&, make = args.make_results](const Problem& p) {
        was_asked[me] = 1;
        return make(p);
      };
      if (!disagrees && me == 1) {
        args.b[0].rows = 15;
        std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the others are in the call by then
      }
      try {
        op.run(args);
      } catch (const Error&) {
        is_nan[me] = is_all_nan(checker.out(0));
        throw;
      }
    });
    EXPECT_NE(first_error(outcomes), "");
    EXPECT_EQ(is_nan, was_asked) << disagrees;
    EXPECT_GT(std::count(was_asked.begin(), was_asked.end(), 1), 1) << disagrees;
    EXPECT_TRUE(disagrees || was_asked[1] == 0);
  }
}

TEST(AgGemmFault, ACallOnADeadCommunicatorAsksForNoResultsAndTouchesNone) {
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
    Operation op(session);
    CallChecker first(kCall, session.rank().value);
    Arguments bad = first.arguments();
    if (session.rank() == Rank{1}) bad.b[0].rows = 15;
    EXPECT_THROW(op.run(bad), Error);
    while (!session.is_dead()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CallChecker second(kCall, session.rank().value);
    second.fill_results(1);
    const std::vector<std::byte> before = second.out(0).bytes();
    Arguments args = second.arguments();
    bool was_asked = false;
    args.make_results = [&](const Problem&) {
      was_asked = true;
      return Arguments::Results{{second.out(0).view()}, {}};
    };
    EXPECT_THROW(op.run(args), Error);
    EXPECT_FALSE(was_asked);
    EXPECT_EQ(second.out(0).bytes(), before);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(AgGemmFault, OneRankThatRefusesTellsTheOthersWhy) {
  const auto outcomes = run_spoiled(quick_options(), [](Rank r, Arguments& args) {
    if (r == Rank{1}) args.b[0].rows = 15;
  });
  expect_everywhere(outcomes, {"b does not fit a"});
  EXPECT_EQ(outcomes[1].kind, ErrorKind::invalid_argument);
}

TEST(AgGemmFault, ACallThatAllRanksRefuseLeavesTheCommunicatorUsable) {
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [](Session& session) {
    Operation op(session);
    for (int i = 0; i < 3; ++i) {
      CallChecker bad(kCall, session.rank().value);
      Arguments args = bad.arguments();
      args.b[0].dtype = DataType::fp16;
      EXPECT_THROW(op.run(args), Error);
      CallChecker good(kCall, session.rank().value);
      op.run(good.arguments());
      good.check();
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(AgGemmFault, AHandleWithARowListOfTheWrongLengthIsRefusedOnAllRanks) {
  for (const size_t counts : {3, 5}) {
    const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [&](Session& session) {
      Operation op(session);
      op.agree({.rows = std::vector<int64_t>(counts, 8), .k = 16, .cols = {12}}, "");
    });
    expect_everywhere(outcomes, {std::to_string(counts) + " row counts", "4 ranks"});
    for (const RankOutcome& o : outcomes) EXPECT_EQ(o.kind, ErrorKind::invalid_argument) << o.error;
  }
}

TEST(AgGemmFault, AResultThatAliasesAnInputIsRefusedByName) {
  const auto outcomes = run_spoiled(quick_options(), [](Rank r, Arguments& args) {
    if (r != Rank{3}) return;
    args.make_results = [&args](const Problem& p) {
      MatrixView out{args.b[0].data, p.total_rows(), p.cols[0], p.cols[0], 1, p.out_dtype};
      return Arguments::Results{{out}, {}};
    };
  });
  expect_everywhere(outcomes, {"out overlaps b"});
}

TEST(AgGemmFault, AResultThatAliasesABiasIsRefusedByName) {
  std::vector<float> shared(43 * 12 + 11);  // a result of 43 rows, whose last element is the first one of the bias
  const auto outcomes = run_spoiled(quick_options(), [&](Rank r, Arguments& args) {
    if (r != Rank{3}) return;
    args.bias = {shared.data() + 43 * 12 - 1};
    args.make_results = [&shared](const Problem& p) {
      return Arguments::Results{{{shared.data(), p.total_rows(), p.cols[0], p.cols[0], 1, p.out_dtype}}, {}};
    };
  });
  expect_everywhere(outcomes, {"out overlaps bias"});
}

TEST(AgGemmFault, ARankThatNeverCallsIsADeadlineThatNamesTheWord) {
  Options options = test_options();
  options.deadline_s = 0.5;
  std::vector<float> first_out(4, 0);
  const auto outcomes = run_thread_cluster({2, 2}, options, [&](Session& session) {
    Operation op(session);
    CallChecker first(kCall, session.rank().value);
    op.run(first.arguments());
    CallChecker second(kCall, session.rank().value);
    second.fill_results(1);
    if (session.rank() == Rank{3}) {
      std::this_thread::sleep_for(std::chrono::seconds(2));
      session.throw_if_dead();
      return;
    }
    try {
      op.run(second.arguments());
    } catch (const Error&) {
      first_out[session.rank().value] = second.out(0).get(0, 0);
      throw;
    }
  });
  expect_everywhere(outcomes, {"rank 3", "waited 0.5 s for", "epoch 2", "call 2"});
  for (const RankOutcome& o : outcomes) EXPECT_EQ(o.kind, ErrorKind::deadline) << o.error;
  for (int32_t r = 0; r < 3; ++r) EXPECT_TRUE(std::isnan(first_out[r])) << "rank " << r << " kept half a result";
}

TEST(AgGemmFault, AFailedRequestOfTheNetworkEndsTheCallOnAllRanks) {
  const auto outcomes = run_thread_cluster(
      {2, 2}, quick_options(),
      [](Session& session) {
        Operation op(session);
        for (uint64_t i = 0; i < 50; ++i) {
          CallChecker checker(kCall, session.rank().value);
          op.run(checker.arguments());
          checker.check();
        }
      },
      [](Rank r, Options& o) {
        if (r == Rank{2}) o.fault = "fail:nth=20";
      });
  for (const RankOutcome& o : outcomes) EXPECT_EQ(o.kind, ErrorKind::aborted) << o.error;
  expect_everywhere(outcomes, {"rank 2"});
}

TEST(AgGemmFault, AProxyThreadThatDiesEndsTheCallOnAllRanks) {
  const auto outcomes = run_thread_cluster(
      {2, 2}, quick_options(),
      [](Session& session) {
        Operation op(session);
        for (uint64_t i = 0; i < 200; ++i) {
          CallChecker checker(kCall, session.rank().value);
          op.run(checker.arguments());
        }
      },
      [](Rank r, Options& o) {
        if (r == Rank{0}) o.fault = "die:step=200";
      });
  for (const RankOutcome& o : outcomes) EXPECT_EQ(o.kind, ErrorKind::aborted) << o.error;
}

TEST(AgGemmFault, ANetworkThatStallsForAWhileOnlyDelays) {
  Options options = quick_options();
  options.fault = "stall:after=10,ms=200";
  run_and_check({2, 2}, options, {kCall, kCall, kCall, kCall});
}

TEST(AgGemmFault, ATransportThatTakesNothingForAWhileOnlyDelays) {
  Options options = quick_options();
  options.fault = "full:after=5,times=100";
  options.ring_entries = 16;
  TestCall c{.rows = {64, 64, 64, 64}, .k = 16, .cols = {8}};
  c.plan_json = to_json(PlanChoice{.chunk_rows = 2,
                                   .is_fused = true,
                                   .tile_rows = 16,
                                   .tile_cols = 16,
                                   .raster_rows = 1,
                                   .workers = 1,
                                   .cursors = {}});
  run_and_check({2, 2}, options, {c, c, c});
}

TEST(AgGemmFault, ARankThatLeavesBetweenCallsIsNamedToThoseWhoWaitForIt) {
  const auto outcomes = run_thread_cluster({2, 2}, quick_options(), [](Session& session) {
    Operation op(session);
    for (int call = 0; call < 2; ++call) {
      CallChecker checker(kCall, session.rank().value);
      op.run(checker.arguments());
      if (session.rank() == Rank{1}) return;
    }
  });
  EXPECT_EQ(outcomes[1].error, "");
  for (const int32_t r : {0, 2, 3}) {
    EXPECT_EQ(outcomes[r].kind, ErrorKind::peer_lost) << outcomes[r].error;
    EXPECT_NE(outcomes[r].error.find("rank 1"), std::string::npos) << outcomes[r].error;
  }
}

TEST(AgGemmFault, AnExceptionInOneRanksOwnCodeReachesTheOthers) {
  const auto outcomes = run_spoiled(quick_options(), [](Rank r, Arguments& args) {
    if (r == Rank{2}) args.make_results = [](const Problem&) -> Arguments::Results { throw std::bad_alloc(); };
  });
  for (size_t r = 0; r < 4; ++r) EXPECT_NE(outcomes[r].error, "") << "rank " << r;
  EXPECT_NE(outcomes[0].error.find("rank 2"), std::string::npos) << outcomes[0].error;
}

TEST(AgGemmFault, ADeadCommunicatorRefusesFurtherCallsAndANewOneWorks) {
  for (int round = 0; round < 2; ++round) {
    const auto outcomes = run_spoiled(quick_options(), [](Rank r, Arguments& args) {
      if (r == Rank{0}) args.b[0].rows = 15;
    });
    EXPECT_NE(first_error(outcomes), "");
  }
  run_and_check({2, 2}, quick_options(), {kCall});
}

}  // namespace
}  // namespace tilewire::ag_gemm

// Sessions and calls by themselves, with a toy program in place of an operation: who leaves when, and how fast.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/call.h"
#include "memory/words.h"
#include "base/hash.h"
#include "base/log.h"
#include "testing/given_time.h"
#include "testing/thread_cluster.h"

namespace tilewire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kEndlessPieces = 6000;  // half a minute of toil

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

Options test_options() {
  Options o;
  o.arena_initial_bytes = 1 << 20;
  o.arena_reserve_bytes = 16 << 20;
  o.user_arena_reserve_bytes = 16 << 20;
  o.max_chunks_per_source = 16;
  o.deadline_s = 20;
  o.connect_deadline_s = 20;
  return o;
}

// Pieces of work that need nothing and publish nothing.
class ToilRole {
 public:
  using Work = WorkBase;
  explicit ToilRole(int32_t pieces) : left_(pieces) {}
  bool next(Work& w) {
    w = Work{};
    return left_-- > 0;
  }
  Need need(const Work&, int32_t) const { return {}; }
  Publish publish(const Work&, int32_t) const { return {}; }

 private:
  int32_t left_;
};

// A call whose one role takes `pieces` of 5 ms. A rank without other nodes has only its call ring to end.
void toil(Session& session, int32_t pieces, const std::function<void()>& piece = {}) {
  Call call(session, "toil");
  call.begin(std::make_shared<CallText>(plain_text("toil")));
  call.run(1, [&](Epoch epoch) {
    Call::Program program;
    program.roles.push_back({{.name = "toil"}, [&, epoch](RoleContext& context) {
                               run_role(context, ToilRole(pieces), {}, [&](const WorkBase&) {
                                 if (piece) piece();
                                 std::this_thread::sleep_for(std::chrono::milliseconds(5));
                                 return TraceEvent{};
                               });
                               CallWork end;
                               if (RingEnd().next(session.frame(epoch), end)) context.post(Ring::send, end.command);
                             }});
    program.drain = [](RoleContext&) {};
    return program;
  });
}

TEST(Session, EachRankSaysOnceWhichTransportAllHaveChosenAndHowChunksAreAnnounced) {
  std::vector<std::string> lines;
  set_log_level(LogLevel::info);
  const LogSink before = set_log_sink([&](LogLevel, std::string_view line) {
    const size_t at = line.find("transport emulated");
    if (at != std::string_view::npos) lines.emplace_back(line.substr(at));
  });
  const auto outcomes = run_thread_cluster({1, 2}, test_options(), [](Session&) {});
  set_log_sink(before);
  set_log_level(LogLevel::warn);
  EXPECT_EQ(first_error(outcomes), "");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], lines[2]);
}

TEST(Session, RankZeroWarnsOfATransportThatIsNamedWhereNoneIsNeeded) {
  const auto warnings_of = [](const std::string& transport, const std::vector<int32_t>& layout) {
    std::vector<std::string> lines;
    const LogSink before = set_log_sink([&](LogLevel, std::string_view line) {
      if (line.find("is not used") != std::string_view::npos) lines.emplace_back(line);
    });
    Options options = test_options();
    options.transport = transport;
    EXPECT_EQ(first_error(run_thread_cluster(layout, options, [](Session&) {})), "");
    set_log_sink(before);
    return lines;
  };
  const auto lines = warnings_of("rc", {2});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("transport = rc is not used: all 2 ranks are on one node"), std::string::npos) << lines[0];
  EXPECT_TRUE(warnings_of("auto", {2}).empty());
  EXPECT_TRUE(warnings_of("emulated", {2}).empty());
}

// Of three ranks rank 0 has the fault, rank 1 leaves behind `calls` calls and rank 2 stays: rank 2 hears `named`, and rank 1
// of nothing. Both count as alive for as long as a goodbye may be on its way.
void expect_who_stays_is_named_alone(const std::string& fault, int calls, const std::string& named) {
  expect_given_time(std::chrono::seconds(1), [&](std::chrono::milliseconds limit) {
    Options options = test_options();
    options.death_s = std::chrono::duration<double>(limit).count();
    options.heartbeat_ms = 100;
    const auto begin = Clock::now();
    const auto outcomes = run_thread_cluster(
        {1, 1, 1}, options,
        [&](Session& session) {
          for (int i = 0; i < calls; ++i) toil(session, 1);
          if (session.rank() == Rank{1}) return;
          comes_true([&] { return session.control().aborted().has_value(); });
          session.control().throw_if_aborted();
        },
        [&](Rank rank, Options& own) {
          if (rank == Rank{0}) own.fault = fault;
        });
    const std::string& error = outcomes[2].error;
    const bool is_named = error.find(named) != std::string::npos;
    if (Clock::now() - begin < limit) return "a goodbye had no time to come: " + error;
    return is_named && outcomes[1].error.empty() ? "" : outcomes[1].error + error;
  });
}

TEST(Session, AReportThatFailsEndsACommunicatorByTheNameOfALivingPeerAloneAndNotOfOneThatHasLeft) {
  expect_who_stays_is_named_alone("report:peer=1;report:peer=2", 0, "a report of what has come to rank 2 failed");
}

// Of the three writes of a call to each other rank, its record with a word and the word that it is done, the last one is
// there and its acknowledgement is lost.
TEST(Session, ALastWordWithoutAcknowledgementEndsACommunicatorByTheNameOfAPeerThatStaysAndNotOfOneThatHasLeft) {
  expect_who_stays_is_named_alone("deny:peer=1,nth=3;deny:peer=2,nth=3", 1, "a request to rank 2 failed");
}

// All ranks but the one with the fault have left when it closes.
TEST(Session, CallsEndWellWhereAllPeersHaveLeftBeforeTheirLastAcknowledgementsCame) {
  Options options = test_options();
  options.death_s = 1000;  // they may be late here, where a network loses acknowledgements of who has gone alone
  const auto outcomes = run_thread_cluster(
      {1, 1, 1}, options,
      [](Session& session) {
        for (int i = 0; i < 3; ++i) toil(session, 1);
        if (session.rank() != Rank{0}) return;
        EXPECT_TRUE(comes_true([&] { return load_sent(session.arena().control()) == 3; }));
      },
      [](Rank rank, Options& own) {
        if (rank == Rank{0}) own.fault = "deny:peer=1,nth=9;deny:peer=2,nth=9";
      });
  EXPECT_EQ(first_error(outcomes), "");
  EXPECT_EQ(outcomes[0].faults_come, (std::vector<uint64_t>{1, 1}));
}

TEST(Session, ARoleWithoutWaitsLeavesWhenAnotherRankFails) {
  std::array<std::atomic<int32_t>, 4> pieces{};
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [&](Session& session) {
    toil(session, kEndlessPieces, [&] {
      ++pieces.at(static_cast<size_t>(session.rank().value));
      if (session.rank() == Rank{3}) throw Error(ErrorKind::resource, {.what = "out of luck"});
    });
  });
  for (size_t r = 0; r < 4; ++r) {
    EXPECT_NE(outcomes[r].error.find("out of luck"), std::string::npos) << outcomes[r].error;
    EXPECT_LT(pieces[r], kEndlessPieces) << "rank " << r << " toiled on";
  }
}

TEST(Session, CloseFromAnotherThreadEndsTheCallOnAllRanks) {
  std::array<std::atomic<int32_t>, 2> pieces{};
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
    std::thread closer;
    if (session.rank() == Rank{0}) {
      closer = std::thread([&] {
        EXPECT_TRUE(comes_true([&] { return pieces[0] > 0 && pieces[1] > 0; }));
        session.close();
      });
    }
    std::string text;
    try {
      toil(session, kEndlessPieces, [&] { ++pieces.at(static_cast<size_t>(session.rank().value)); });
    } catch (const Error& error) {
      text = error.what();
    }
    if (closer.joinable()) closer.join();
    if (!text.empty()) throw Error(ErrorKind::aborted, {.what = text});
  });
  EXPECT_NE(outcomes[1].error.find("rank 0 closed"), std::string::npos) << outcomes[1].error;
  EXPECT_NE(outcomes[0].error, "");
  for (size_t r = 0; r < 2; ++r) EXPECT_LT(pieces[r], kEndlessPieces) << "rank " << r << " toiled on";
}

TEST(Session, CloseWhileAnAgreementWaitsForOtherRanksIsQuick) {
  double seconds = 100;
  Options options = test_options();
  options.deadline_s = 40;
  const auto outcomes = run_thread_cluster({1, 1}, options, [&](Session& session) {
    if (session.rank() == Rank{1}) {
      while (!session.is_dead()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return;
    }
    std::thread closer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto begin = Clock::now();
      session.close();
      seconds = seconds_since(begin);
    });
    try {
      Call call(session, "toil");
      call.begin(std::make_shared<CallText>(plain_text("toil")));
      call.agree("plan", hash64("something"), 0);
    } catch (const Error&) {
    }
    closer.join();
  });
  EXPECT_LT(seconds, 20) << "it waited for the agreement's deadline";
}

TEST(Session, CallsOfTwoThreadsTakeTurns) {
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
    std::vector<std::thread> threads;
    std::vector<std::string> errors(2);
    for (int t = 0; t < 2; ++t) {
      threads.emplace_back([&, t] {
        try {
          for (int i = 0; i < 10; ++i) toil(session, 1);
        } catch (const Error& error) {
          errors[t] = error.what();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(errors[0], "");
    EXPECT_EQ(errors[1], "");
    EXPECT_EQ(session.epoch(), 20u);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Roles append to the trace while a call is in flight; under ThreadSanitizer this shows who reads it then.
TEST(Session, ATraceIsReadBesideCallsOfAnotherThread) {
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
    session.start_trace();
    std::atomic<bool> is_done{false};
    std::thread reader([&] {
      size_t seen = 0;
      while (!is_done) {
        const size_t now = session.trace_record().events.size();
        EXPECT_GE(now, seen);
        seen = now;
      }
    });
    for (int i = 0; i < 20; ++i) toil(session, 1);
    is_done = true;
    reader.join();
    EXPECT_GE(session.trace_record().events.size(), 20u);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Who reads a trace holds a QuietGuard and is in no call: a close waits for it, and tells nobody of a call that it ended.
TEST(Session, ACloseWaitsForWhoReadsATraceAndLeavesInOrder) {
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
    toil(session, 1);
    if (session.rank() == Rank{0}) return toil(session, 1);
    std::optional<Session::QuietGuard> reading(std::in_place, session);
    std::atomic<bool> is_closed{false};
    std::thread closer([&] {
      session.close();
      is_closed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(is_closed) << "what is read would be gone";
    reading.reset();
    closer.join();
  });
  EXPECT_EQ(outcomes[0].kind, ErrorKind::peer_lost) << outcomes[0].error;
  EXPECT_EQ(outcomes[1].error, "");
}

// The other thread has asked for its turn, as far as one can know, while the first call of the row was under way.
TEST(Session, CallsOfARowAreOneTurnForOtherThreads) {
  const auto outcomes = run_thread_cluster({1, 1}, test_options(), [&](Session& session) {
    std::vector<std::string> order;  // under the turns
    std::atomic<bool> is_asking{false};
    std::thread other;
    {
      const Session::CallRow row(session);
      toil(session, 1, [&] { order.emplace_back("first of the row"); });
      other = std::thread([&] {
        is_asking = true;
        toil(session, 1, [&] { order.emplace_back("other"); });
      });
      while (!is_asking) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      toil(session, 1, [&] { order.emplace_back("last of the row"); });
    }
    other.join();
    EXPECT_EQ(order, (std::vector<std::string>{"first of the row", "last of the row", "other"}));
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// What a call asks of its user must not begin another one: that would wait for its own turn.
TEST(Session, ACallInsideACallOfARowIsAnError) {
  const auto outcomes = run_thread_cluster({1}, test_options(), [&](Session& session) {
    const Session::CallRow row(session);
    const Call outer(session, "toil");
    toil(session, 1);
  });
  EXPECT_EQ(outcomes[0].kind, ErrorKind::invalid_argument) << outcomes[0].error;
}

TEST(Session, GrowthGetsByWithLessThanDouble) {
  Options options = test_options();
  options.arena_initial_bytes = 10 << 20;  // doubled it would not fit the reserve of 16 MiB
  const auto outcomes = run_thread_cluster({2}, options, [&](Session& session) {
    Call call(session, "toil");
    call.begin(std::make_shared<CallText>(plain_text("toil")));
    call.agree("plan", hash64("more"), 11 << 20);
    EXPECT_GE(session.agreed_half_bytes(), 11 << 20);
    EXPECT_LE(session.agreed_half_bytes(), 16 << 20);
    call.end();
  });
  EXPECT_EQ(first_error(outcomes), "");
}

// Each growth is a registration, and each border of two of them may cut a chunk.
TEST(Session, MemoryOfUsersGrowsInFewStepsHoweverSmallTheyAre) {
  Options options = test_options();
  options.user_arena_reserve_bytes = 12 << 20;  // less than double at the end
  const auto outcomes = run_thread_cluster({1, 1}, options, [&](Session& session) {
    const size_t before = session.arena().ranges().size();
    for (int i = 0; i < 1000; ++i) session.allocate_user(10'000);
    EXPECT_LE(session.arena().ranges().size() - before, 5u);
    EXPECT_EQ(session.arena().user_bytes(), 12 << 20);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(Session, RanksWithUnlikeNetworksAreToldSo) {
  const auto outcomes = run_thread_cluster(
      {1, 1}, test_options(), [](Session&) {},
      [](Rank r, Options& o) {
        if (r == Rank{1}) o.emulated_personality = "srd";
      });
  for (const RankOutcome& o : outcomes) EXPECT_EQ(o.kind, ErrorKind::mismatch) << o.error;
}

}  // namespace
}  // namespace tilewire

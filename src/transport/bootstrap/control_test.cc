// The control connection with ranks as threads of this process, so that TSan sees all of it.
#include "transport/bootstrap/control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "testing/given_time.h"
#include "transport/bootstrap/bootstrap_fixture.h"

namespace tilewire {
namespace {

struct Seen {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<AbortNotice> aborts;
  std::vector<std::pair<Rank, uint64_t>> left;

  bool wait(const std::function<bool()>& condition) {
    std::unique_lock lock(mutex);
    return changed.wait_until(lock, deadline_in(20s), condition);
  }
};

struct Member {
  ControlConnection& control;
  Seen& seen;
  int rank;
};

// Ranks as threads, connected; what each threw. A body that returns is followed by close().
std::vector<Failure> run_connected(int world_size, const std::function<void(Member)>& body,
                                   ControlOptions options = {}) {
  MemoryStore store;
  return run_ranks(world_size, [&](int rank) {
    RendezvousOptions join = rank_options(rank, world_size, "");
    join.store = &store;
    Seen seen;
    ControlCallbacks callbacks;
    callbacks.on_abort = [&seen](const AbortNotice& notice) {
      const std::lock_guard lock(seen.mutex);
      seen.aborts.push_back(notice);
      seen.changed.notify_all();
    };
    callbacks.on_left = [&seen](Rank who, uint64_t last_ended) {
      const std::lock_guard lock(seen.mutex);
      seen.left.emplace_back(who, last_ended);
      seen.changed.notify_all();
    };
    ControlConnection control(rendezvous(join), options, callbacks);
    body({control, seen, rank});
    control.close();
  });
}

void expect_none(const std::vector<Failure>& failures) {
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    EXPECT_FALSE(failures[rank].has_failed) << "rank " << rank << ": " << failures[rank].text;
  }
}

void expect_failure(const Failure& failure, ErrorKind kind, const std::vector<std::string>& parts) {
  EXPECT_TRUE(failure.has_failed);
  EXPECT_EQ(failure.kind, kind) << failure.text;
  for (const std::string& part : parts) EXPECT_TRUE(failure.names(part)) << part << " is not in: " << failure.text;
}

// The first that is no deadline of whom `parts` tell; "" without one.
std::string who_says_otherwise(const std::vector<Failure>& failures, const std::vector<std::string>& parts) {
  for (const Failure& failure : failures) {
    const auto is_said = [&](const std::string& part) { return failure.names(part); };
    const bool is_all_said = std::all_of(parts.begin(), parts.end(), is_said);
    if (failure.kind != ErrorKind::deadline || !is_all_said) return "one says: " + failure.text;
  }
  return std::string();
}

TEST(Control, GatherGivesEveryRankAllBytesInOrder) {
  for (const int world_size : {1, 2, 3, 8}) {
    expect_none(run_connected(world_size, [&](Member m) {
      for (uint64_t turn = 0; turn < 50; ++turn) {
        const std::string mine(static_cast<size_t>(m.rank) * 100 + turn, static_cast<char>('a' + m.rank));
        const auto all = m.control.allgather({.kind = "turn", .hash = turn}, to_bytes(mine), deadline_in(20s));
        ASSERT_EQ(all.size(), static_cast<size_t>(world_size));
        for (size_t rank = 0; rank < all.size(); ++rank) {
          ASSERT_EQ(to_text(all[rank]), std::string(rank * 100 + turn, static_cast<char>('a' + rank)));
        }
      }
      m.control.barrier("end", deadline_in(20s));
    }));
  }
}

TEST(Control, LargeContributionsComeWholeAndTooLargeOnesAreRefused) {
  const ControlOptions options{.max_gather_bytes = size_t{4} << 20};
  const auto body = [](Member m) {
    const Bytes mine(size_t{2} << 20, static_cast<std::byte>(m.rank + 1));
    const auto all = m.control.allgather({.kind = "large"}, mine, deadline_in(30s));
    ASSERT_EQ(all[1], Bytes(size_t{2} << 20, std::byte{2}));
    const Failure failure =
        failure_of([&] { m.control.allgather({.kind = "larger"}, Bytes(mine.size() + 1), deadline_in(1s)); });
    expect_failure(failure, ErrorKind::invalid_argument, {"2097153", "2097152"});
    m.control.barrier("end", deadline_in(20s));
  };
  expect_none(run_connected(2, body, options));
}

TEST(Control, RanksInDifferentStepsAreToldBothSteps) {
  const auto failures = run_connected(
      3, [](Member m) { m.control.allgather({.kind = m.rank == 1 ? "arena growth" : "plan"}, {}, deadline_in(20s)); });
  for (const Failure& failure : failures) {
    expect_failure(failure, ErrorKind::mismatch, {"rank 1 is in 'arena growth'", "is in 'plan'"});
  }
}

TEST(Control, GatherPastItsDeadlineListsWhoDidNotComeOnAllRanks) {
  expect_given_time(150ms, [](std::chrono::milliseconds limit) {
    const auto failures = run_connected(3, [&](Member m) {
      m.control.barrier("start", deadline_in(20s));
      const GatherTag tag{.kind = "plan", .limit_variable = kJoinLimitVariable};
      if (m.rank != 2) m.control.allgather(tag, {}, deadline_in(m.rank == 0 ? limit : 20s));
      m.seen.wait([&] { return !m.seen.aborts.empty(); });
      m.control.throw_if_aborted();
    });
    return who_says_otherwise(
        failures, {"rank 2 did not come to 'plan'", "where rank 0 waited", "raise TILEWIRE_CONNECT_DEADLINE_S"});
  });
}

TEST(Control, FirstAbortReachesAllOnceWithOneText) {
  std::mutex mutex;
  std::set<std::string> texts;
  expect_none(run_connected(4, [&](Member m) {
    m.control.barrier("start", deadline_in(20s));
    if (m.rank >= 2) m.control.send_abort(ErrorKind::aborted, "rank " + std::to_string(m.rank) + " had enough");
    ASSERT_TRUE(m.seen.wait([&] { return !m.seen.aborts.empty(); }));
    std::this_thread::sleep_for(50ms);
    const std::lock_guard lock(mutex);
    const std::lock_guard seen_lock(m.seen.mutex);
    EXPECT_EQ(m.seen.aborts.size(), 1u);
    texts.insert(m.seen.aborts[0].text);
    EXPECT_TRUE(m.control.aborted().has_value());
  }));
  EXPECT_EQ(texts.size(), 1u);
}

TEST(Control, LossAfterAnAbortIsNotASecondOne) {
  const auto failures = run_connected(2, [](Member m) {
    if (m.rank == 0) m.control.send_abort(ErrorKind::aborted, "the first");
    ASSERT_TRUE(m.seen.wait([&] { return !m.seen.aborts.empty(); }));
    if (m.rank == 0) throw std::runtime_error("dropped without close");
    std::this_thread::sleep_for(300ms);
    const std::lock_guard lock(m.seen.mutex);
    ASSERT_EQ(m.seen.aborts.size(), 1u);
    EXPECT_EQ(m.seen.aborts[0].text, "the first");
  });
  EXPECT_FALSE(failures[1].has_failed) << failures[1].text;
}

TEST(Control, IdleRanksThatLiveLongerThanTheDeathLimitAreNotDead) {
  expect_given_time(300ms, [](std::chrono::milliseconds death) {
    const auto failures = run_connected(3,
                                        [&](Member m) {
                                          std::this_thread::sleep_for(3 * death);
                                          m.control.barrier("all alive", deadline_in(20s));
                                        },
                                        {.heartbeat = 50ms, .death = death});
    for (const Failure& failure : failures) {
      if (failure.has_failed) return failure.text;
    }
    return std::string();
  });
}

TEST(Control, WhoHasAbortedMakesNoCallHoweverLateTheNewsIs) {
  for (int turn = 0; turn < 20; ++turn) {
    const auto failures = run_connected(2, [turn](Member m) {
      m.control.begin_call(1, said("gemm"));
      if (m.rank == 1) {
        m.control.send_abort(ErrorKind::aborted, "rank 1 left its call");
        turn % 2 == 0 ? m.control.enter_call(1) : m.control.begin_call(2, said("gemm"));
      }
      m.seen.wait([&] { return !m.seen.aborts.empty(); });
    });
    expect_failure(failures[1], ErrorKind::aborted, {"rank 1 left its call"});
  }
}

TEST(Control, AbortWakesAGather) {
  const SteadyTime start = steady_now();
  const auto failures = run_connected(2, [](Member m) {
    if (m.rank == 1) return m.control.send_abort(ErrorKind::aborted, "rank 1 stops here");
    m.control.barrier("never complete", deadline_in(30s));
  });
  expect_failure(failures[0], ErrorKind::aborted, {"rank 1 stops here"});
  EXPECT_LT(steady_now() - start, 20s);
}

TEST(Control, RefusalAbortsTheRankInsideTheCall) {
  for (const int refusing : {0, 1}) {
    const auto failures = run_connected(2, [&](Member m) {
      if (m.rank == refusing) {
        m.control.refuse_call(1, "k = 3, must be 4");
      } else {
        m.control.begin_call(1, said("gemm"));
        m.control.enter_call(1);
      }
      m.seen.wait([&] { return !m.seen.aborts.empty(); });
      m.control.throw_if_aborted();
    });
    for (const Failure& failure : failures) expect_failure(failure, ErrorKind::refused, {"k = 3, must be 4", "call 1"});
  }
}

TEST(Control, RefusalHeardEarlyAbortsAtBegin) {
  const auto failures = run_connected(2, [&](Member m) {
    if (m.rank == 1) m.control.refuse_call(1, "k = 3");
    m.control.barrier("both here", deadline_in(20s));  // behind the refusal on the same connections
    if (m.rank == 0) m.control.begin_call(1, said("gemm"));
    m.seen.wait([&] { return !m.seen.aborts.empty(); });
  });
  expect_failure(failures[0], ErrorKind::refused, {"rank 1", "k = 3"});
}

TEST(Control, CallRefusedByAllLeavesTheCommunicatorAlive) {
  expect_none(run_connected(3, [](Member m) {
    m.control.refuse_call(1, "k = 3");
    m.control.barrier("after", deadline_in(20s));
    m.control.begin_call(2, said("gemm"));
    m.control.enter_call(2);
    m.control.end_call(2);
    m.control.barrier("end", deadline_in(20s));
    EXPECT_FALSE(m.control.aborted().has_value());
  }));
}

TEST(Control, WhoHasRefusedWaitsForAllOrForTheEndThatItsRefusalIs) {
  for (const bool is_lone : {false, true}) {
    std::atomic<bool> is_through{false};
    const SteadyTime start = steady_now();
    const auto failures = run_connected(3, [&](Member m) {
      m.control.await_refusals(deadline_in(20s));  // of nothing
      if (m.rank != 1) {
        m.control.barrier("one has refused", deadline_in(20s));
        if (is_lone) m.control.begin_call(1, said("gemm"));
        EXPECT_FALSE(is_through);
      }
      m.control.refuse_call(1, "k = 3");
      if (m.rank == 1) m.control.barrier("one has refused", deadline_in(20s));
      m.control.await_refusals(deadline_in(20s));
      is_through = true;
      m.control.barrier("end", deadline_in(20s));
    });
    for (const Failure& failure : failures) {
      EXPECT_EQ(failure.has_failed, is_lone) << failure.text;
      if (is_lone) expect_failure(failure, ErrorKind::refused, {"rank 1 refused call 1", "k = 3"});
    }
    EXPECT_EQ(is_through, !is_lone);
    EXPECT_LT(steady_now() - start, 20s) << "they are woken";
  }
}

TEST(Control, WhoHasRefusedAloneNamesThoseThatDoNotComeOnAllRanks) {
  expect_given_time(150ms, [](std::chrono::milliseconds limit) {
    const auto failures = run_connected(4, [&](Member m) {
      m.control.barrier("start", deadline_in(20s));
      if (m.rank <= 1) m.control.refuse_call(1, "k = 3");
      if (m.rank == 1) m.control.await_refusals(deadline_in(limit));
      m.seen.wait([&] { return !m.seen.aborts.empty(); });
      m.control.throw_if_aborted();
    });
    return who_says_otherwise(failures,
                              {"rank 1 refused call 1 and has waited", "rank 2, 3", "raise TILEWIRE_DEADLINE_S"});
  });
}

TEST(Control, RankInsideACallAndRankThatAgreesOnItAreBothTold) {
  const auto failures = run_connected(3, [](Member m) {
    m.control.begin_call(7, said("gemm of " + std::to_string(m.rank)));
    if (m.rank != 1) m.control.allgather({.kind = "plan", .call = 7, .hash = 5}, {}, deadline_in(20s));
    m.control.enter_call(7);
    m.seen.wait([&] { return !m.seen.aborts.empty(); });
    m.control.throw_if_aborted();
  });
  for (const Failure& failure : failures) {
    expect_failure(failure, ErrorKind::mismatch, {"call 7", "gemm of 1", "is past all agreement", "plan"});
  }
}

TEST(Control, HandleCreationAgainstACallIsToldInsteadOfHanging) {
  const auto failures = run_connected(2, [](Member m) {
    if (m.rank == 0) m.control.allgather({.kind = "handle"}, {}, deadline_in(20s));
    m.control.begin_call(1, said("gemm"));
    m.control.enter_call(1);
    m.seen.wait([&] { return !m.seen.aborts.empty(); });
    m.control.throw_if_aborted();
  });
  for (const Failure& failure : failures) expect_failure(failure, ErrorKind::mismatch, {"'handle'", "call 1: gemm"});
}

TEST(Control, MismatchReportNamesBothRanksAndBothValues) {
  for (const int peer : {0, 2}) {
    const auto failures = run_connected(3, [&](Member m) {
      m.control.begin_call(4, said("K = " + std::to_string(m.rank)));
      m.control.barrier("begun", deadline_in(20s));
      if (m.rank == 1) m.control.report_mismatch(4, Rank(peer), advised("K = 1", "pass the same K"));
      m.seen.wait([&] { return !m.seen.aborts.empty(); });
      m.control.throw_if_aborted();
    });
    for (const Failure& failure : failures) {
      expect_failure(failure, ErrorKind::mismatch,
                     {"call 4", "rank 1: K = 1", "rank " + std::to_string(peer) + ": K = " + std::to_string(peer),
                      "pass the same K"});
    }
  }
}

TEST(Control, OrderlyLeaveIsToldAndIsNoAbort) {
  std::atomic<int> told{0};
  expect_none(run_connected(3, [&](Member m) {
    if (m.rank == 2) {
      m.control.begin_call(1, said("gemm"));
      m.control.end_call(1);
      return;
    }
    ASSERT_TRUE(m.seen.wait([&] { return !m.seen.left.empty(); }));
    EXPECT_EQ(m.seen.left[0], (std::pair<Rank, uint64_t>(Rank(2), 1)));
    EXPECT_FALSE(m.control.aborted().has_value());
    EXPECT_TRUE(m.control.has_left(Rank(2)));
    EXPECT_FALSE(m.control.has_left(Rank(1 - m.rank)));
    const Failure failure = failure_of([&] { m.control.barrier("without rank 2", deadline_in(20s)); });
    expect_failure(failure, ErrorKind::peer_lost, {"rank 2 closed"});
    for (++told; told < 2;) std::this_thread::sleep_for(1ms);  // nobody closes before both have been told
  }));
}

TEST(Control, RankThatLeavesInMidCallAbortsTheOthersByName) {
  for (const int leaving : {0, 1}) {
    const auto failures = run_connected(3, [&](Member m) {
      m.control.begin_call(1, said("gemm"));
      m.control.enter_call(1);
      m.control.barrier("all inside", deadline_in(20s));
      if (m.rank == leaving) return;
      m.seen.wait([&] { return !m.seen.aborts.empty(); });
      m.control.throw_if_aborted();
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == leaving) continue;
      expect_failure(failures[static_cast<size_t>(rank)], ErrorKind::peer_lost,
                     {"rank " + std::to_string(leaving) + " closed", "call 1"});
    }
  }
}

TEST(Control, RankZeroThatHasLeftIsNamedByAGather) {
  const auto failures = run_connected(2, [](Member m) {
    if (m.rank == 0) return;
    m.seen.wait([&] { return !m.seen.left.empty(); });
    EXPECT_TRUE(m.control.has_left(Rank(0)));
    EXPECT_TRUE(m.control.has_left(Rank(5))) << "nobody would tell of others";
    m.control.barrier("late", deadline_in(20s));
  });
  expect_failure(failures[1], ErrorKind::peer_lost, {"rank 0 closed"});
}

// The refusal and the goodbye come together; the first is the cause.
// Whichever comes first to who waits: the refusal, the goodbye, or its own step.
TEST(Control, WhoRefusesAndLeavesIsHeardForItsRefusalByACommunicatorThatIsDeadThen) {
  for (int round = 0; round < 80; ++round) {
    const int refusing = round % 2;
    const auto failures = run_connected(2, [&](Member m) {
      if (m.rank == refusing) {
        std::this_thread::sleep_for(std::chrono::microseconds(25 * round));
        return m.control.refuse_call(1, "k = 3");
      }
      m.control.begin_call(1, said("gemm"));
      try {
        m.control.allgather({.kind = "plan", .call = 1}, {}, deadline_in(20s));
      } catch (const Error&) {
        EXPECT_TRUE(m.control.aborted().has_value()) << "rank " << m.rank << ", round " << round;
        throw;
      }
    });
    expect_failure(failures[static_cast<size_t>(1 - refusing)], ErrorKind::refused,
                   {"rank " + std::to_string(refusing) + " refused call 1", "k = 3"});
  }
}

TEST(Control, DroppedWithoutCloseIsALossOnTheOthers) {
  for (const int dropping : {0, 1}) {
    const auto failures = run_connected(3, [&](Member m) {
      m.control.barrier("start", deadline_in(20s));
      if (m.rank == dropping) throw std::runtime_error("the application failed");
      m.control.barrier("never complete", deadline_in(20s));
    });
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == dropping) continue;
      expect_failure(failures[static_cast<size_t>(rank)], ErrorKind::peer_lost,
                     {"rank " + std::to_string(dropping) + " is lost"});
    }
  }
}

TEST(Control, CloseIsIdempotentFastAndMakesCallsErrors) {
  std::atomic<bool> is_closed{false};
  expect_none(run_connected(2, [&](Member m) {
    // Rank 0 needs no peer to close.
    if (m.rank == 1) {
      EXPECT_TRUE(comes_true([&] { return is_closed.load(); }));
    }
    m.control.close();
    m.control.close();
    if (m.rank == 0) is_closed = true;
    EXPECT_EQ(failure_of([&] { m.control.begin_call(1, said("late")); }).kind, ErrorKind::closed);
    EXPECT_EQ(failure_of([&] { m.control.barrier("late", deadline_in(1s)); }).kind, ErrorKind::closed);
    m.control.send_abort(ErrorKind::aborted, "late");
  }));
}

TEST(Control, CloseOfAnotherThreadWakesAGather) {
  const auto failures = run_connected(2, [](Member m) {
    if (m.rank == 1) {
      m.seen.wait([&] { return !m.seen.left.empty(); });
      return;
    }
    std::thread closer([&] {
      std::this_thread::sleep_for(100ms);
      m.control.close();
    });
    const Failure failure = failure_of([&] { m.control.barrier("never complete", deadline_in(20s)); });
    closer.join();
    EXPECT_EQ(failure.kind, ErrorKind::closed) << failure.text;
  });
  expect_none(failures);
}

TEST(Control, LimitsThatTakeLiveRanksForDeadAreRefused) {
  const auto failures = run_connected(1, [](Member) {}, {.heartbeat = 500ms, .death = 600ms});
  expect_failure(failures[0], ErrorKind::invalid_argument, {"500 ms", "600 ms"});
}

TEST(Control, ManyCreateAndCloseCyclesLeaveNothingOpen) {
  const auto cycle = [] {
    expect_none(run_connected(3, [](Member m) { m.control.barrier("once", deadline_in(20s)); }));
  };
  const size_t threads = threads_of_process();
  cycle();
  const size_t descriptors = open_descriptors();
  for (int i = 0; i < 200; ++i) cycle();
  EXPECT_EQ(open_descriptors(), descriptors);
  // The system lists a thread for a moment after it was joined.
  EXPECT_TRUE(comes_true([&] { return threads_of_process() <= threads; })) << threads_of_process();
}

TEST(Control, AClosedConnectionThatIsStillThereKeepsNoDescriptor) {
  const auto counts = std::make_shared<std::atomic<size_t>>(0);
  size_t before = 0;
  expect_none(run_connected(1, [&](Member m) {
    m.control.close();
    before = open_descriptors();
    m.control.close();
    m.control.send_abort(ErrorKind::aborted, "late");
    *counts = open_descriptors();
  }));
  EXPECT_EQ(*counts, before);
  EXPECT_EQ(open_descriptors(), before) << "its end has closed one more";
}

// The last rank comes between the deadline of a waiting one and rank 0's answer to it.
TEST(Control, AGatherThatIsOverWhileItsDeadlineIsReportedIsOver) {
  for (int round = 0; round < 20; ++round) {
    const auto failures = run_connected(2, [&](Member m) {
      m.control.barrier("start", deadline_in(20s));
      if (m.rank == 1) std::this_thread::sleep_for(20ms + std::chrono::microseconds(50) * round);
      m.control.barrier("near", deadline_in(m.rank == 0 ? 20ms : 5000ms));
    });
    for (const Failure& f : failures) EXPECT_TRUE(!f.has_failed || f.names("rank 1 did not come")) << f.text;
  }
}

TEST(Control, TwoCommunicatorsOfOneProcessDoNotMix) {
  MemoryStore store;
  expect_none(run_connected(2, [&](Member outer) {
    RendezvousOptions join = rank_options(outer.rank, 2, "");
    join.store = &store;
    ControlConnection inner(rendezvous(join), {}, {});
    if (outer.rank == 0) inner.send_abort(ErrorKind::aborted, "only the inner one");
    while (!inner.aborted()) std::this_thread::sleep_for(1ms);
    outer.control.barrier("outer lives", deadline_in(20s));
    inner.close();
  }));
}

}  // namespace
}  // namespace tilewire

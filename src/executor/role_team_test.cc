#include "executor/role_team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <latch>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "testing/given_time.h"
#include <tilewire/error.h>

namespace tilewire {
namespace {

using std::chrono::milliseconds;

std::vector<TeamRole> roles_of(int count, const std::function<void(int)>& body) {
  std::vector<TeamRole> roles;
  for (int i = 0; i < count; ++i) roles.push_back({"role" + std::to_string(i), [body, i] { body(i); }});
  return roles;
}

TEST(RoleTeam, RolesThatWaitForEachOtherAllRun) {
  RoleTeam team(Rank{0}, 1);
  // More roles than threads and cores: each needs a thread of its own to pass the barrier.
  std::barrier together(7);
  std::atomic<int> passed{0};
  team.run(roles_of(7, [&](int) {
    together.arrive_and_wait();
    ++passed;
  }));
  EXPECT_EQ(passed, 7);
  EXPECT_EQ(team.threads(), 7);
}

TEST(RoleTeam, ThreadsStayFromCallToCall) {
  RoleTeam team(Rank{0});
  std::mutex mutex;
  std::set<std::thread::id> seen;
  int runs = 0;
  for (int call = 0; call < 200; ++call) {
    team.run(roles_of(call % 4, [&](int) {
      std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      ++runs;
    }));
  }
  EXPECT_EQ(runs, 50 * (0 + 1 + 2 + 3));
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(team.threads(), 3);
}

TEST(RoleTeam, StartReturnsWhileRolesRun) {
  RoleTeam team(Rank{0});
  std::latch go(1);
  std::atomic<bool> ended{false};
  team.start(roles_of(1, [&](int) {
    go.wait();
    ended = true;
  }));
  EXPECT_FALSE(ended);
  go.count_down();
  team.join();
  EXPECT_TRUE(ended);
}

TEST(RoleTeam, FirstFailureRaisesTheAbortOnceAndReachesJoin) {
  RoleTeam team(Rank{0});
  std::atomic<bool> abort{false};
  std::atomic<int> told{0};
  // The others wait for a word that never comes and leave by the abort, with an exception of their own.
  const auto roles = roles_of(4, [&](int i) {
    if (i == 2) throw std::runtime_error("the root cause");
    while (!abort) std::this_thread::sleep_for(milliseconds(1));
    throw std::runtime_error("left by the abort");
  });
  try {
    team.run(roles, [&](const std::exception_ptr& failure) {
      ++told;
      EXPECT_THROW(std::rethrow_exception(failure), std::runtime_error);
      abort = true;
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the root cause");
  }
  EXPECT_EQ(told, 1);
}

TEST(RoleTeam, FailureOfACallDoesNotReachTheNext) {
  RoleTeam team(Rank{0});
  int told = 0;
  EXPECT_THROW(team.run(roles_of(1, [](int) { throw 7; }), [&](const std::exception_ptr&) { ++told; }), int);
  team.run(roles_of(2, [](int) {}));
  EXPECT_THROW(team.run(roles_of(1, [](int) { throw 8; })), int);
  EXPECT_EQ(told, 1);
}

TEST(RoleTeam, FailingFailureHandlerIsLoggedAndTheCauseKept) {
  std::atomic<int> errors{0};
  const LogSink before = set_log_sink([&](LogLevel level, std::string_view) { errors += level == LogLevel::error; });
  RoleTeam team(Rank{0});
  try {
    team.run(roles_of(1, [](int) { throw std::runtime_error("cause"); }),
             [](const std::exception_ptr&) { throw std::runtime_error("handler"); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "cause");
  }
  set_log_sink(before);
  EXPECT_EQ(errors, 1);
}

TEST(RoleTeam, DestructorWaitsForRolesThatStillRun) {
  std::atomic<bool> ended{false};
  {
    RoleTeam team(Rank{0});
    team.start(roles_of(1, [&](int) {
      std::this_thread::sleep_for(milliseconds(30));
      ended = true;
    }));
  }
  EXPECT_TRUE(ended);
}

TEST(RoleTeam, WhatARoleCapturedIsGoneAfterJoin) {
  RoleTeam team(Rank{0});
  auto held = std::make_shared<int>(1);
  std::vector<TeamRole> roles = {{"holder", [held] { (void)*held; }}};
  team.start(roles);
  roles.clear();
  team.join();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(RoleTeam, SecondStartBeforeJoinIsRefused) {
  RoleTeam team(Rank{0});
  std::latch go(1);
  team.start(roles_of(1, [&](int) { go.wait(); }));
  EXPECT_THROW(team.start(roles_of(1, [](int) {})), Error);
  go.count_down();
  team.join();
}

TEST(RoleTeam, ThreadsCarryRankAndRoleInTheirNames) {
  RoleTeam team(Rank{12});
  const auto name_in_role = [&](const std::string& role) {
    char name[32] = {};
    const std::vector<TeamRole> roles = {{role, [&] { pthread_getname_np(pthread_self(), name, sizeof name); }}};
    team.run(roles);
    return std::string(name);
  };
  EXPECT_EQ(name_in_role("push"), "tw12/push");
  EXPECT_EQ(name_in_role("a name that is too long"), "tw12/a name tha");
}

TEST(RoleTeam, SignalsOfTheProcessGoToTheApplication) {
  RoleTeam team(Rank{0});
  bool is_blocked = false;
  team.run(roles_of(1, [&](int) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    is_blocked = sigismember(&blocked, SIGINT) == 1 && sigismember(&blocked, SIGTERM) == 1 &&
                 sigismember(&blocked, SIGSEGV) == 0;
  }));
  EXPECT_TRUE(is_blocked);
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  EXPECT_EQ(sigismember(&own, SIGINT), 0);
}

// Counted in switches between threads, not in processor time: on a busy machine a thread that yields in a loop gets
// little of that, and one that goes to sleep may be a while on its way. Fewer switches than threads: none that wakes up
// now and then.
TEST(RoleTeam, IdleThreadsSleepUntilTheyAreWoken) {
  RoleTeam team(Rank{0}, 8);
  team.run(roles_of(8, [](int) {}));
  const auto switches_of_others = [] {
    rusage all{}, own{};
    getrusage(RUSAGE_SELF, &all);
    getrusage(RUSAGE_THREAD, &own);
    return all.ru_nvcsw + all.ru_nivcsw - own.ru_nvcsw - own.ru_nivcsw;
  };
  expect_given_time(milliseconds(100), [&](milliseconds limit) {
    const auto before = switches_of_others();
    std::this_thread::sleep_for(limit);
    const auto switches = switches_of_others() - before;
    return switches < 8 ? "" : std::to_string(switches) + " switches in " + std::to_string(limit.count()) + " ms";
  });
}

}  // namespace
}  // namespace tilewire

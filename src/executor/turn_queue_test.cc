#include "executor/turn_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "testing/given_time.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Five threads whose turns last a third of the limit for one each: everyone waits for four of them.
TEST(TurnQueue, ManyShortTurnsStarveNobody) {
  expect_given_time(150ms, [](std::chrono::milliseconds limit) {
    TurnQueue queue;
    std::atomic<int> turns{0}, refused{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 5; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 4; ++i) {
          if (!queue.begin(limit)) {
            ++refused;
            return;
          }
          std::this_thread::sleep_for(limit / 3);
          ++turns;
          queue.end();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_TRUE(refused > 0 || turns == 5 * 4) << turns;
    return refused == 0 ? "" : std::to_string(refused) + " were refused a turn";
  });
}

// Who has just had a turn goes to the end, however quick it is.
TEST(TurnQueue, TurnsGoInTheOrderOfComing) {
  TurnQueue queue;
  queue.begin();
  std::mutex mutex;
  std::vector<size_t> order;
  std::vector<std::thread> threads;
  const auto expect_waiting = [&](size_t others) {
    EXPECT_TRUE(comes_true([&] { return queue.waiting() == others; })) << queue.waiting() << " wait";
  };
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 3; ++i) {
        queue.begin();
        {
          const std::lock_guard lock(mutex);
          order.push_back(t);
        }
        expect_waiting(i < 2 ? 2 : 2 - t);  // the others are in the queue again
        queue.end();
      }
    });
    expect_waiting(t + 1);
  }
  queue.end();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
}

TEST(TurnQueue, ATurnThatLastsTooLongIsToldToWhoWaitsAndTheNextOneGetsIts) {
  TurnQueue queue;
  queue.begin();
  const auto start = Clock::now();
  std::thread patient([&] {
    ASSERT_TRUE(queue.begin(20s));
    queue.end();
  });
  EXPECT_FALSE(queue.begin(100ms));
  EXPECT_GE(Clock::now() - start, 100ms);
  queue.end();
  patient.join();
  ASSERT_TRUE(queue.begin(20s)) << "who gave up still stands in the queue";
  queue.end();
}

}  // namespace
}  // namespace tilewire

#include "executor/turn_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

namespace tilewire {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Five threads whose turns last 60 ms each: everyone waits for four of them, longer than the limit for one.
TEST(TurnQueue, ManyShortTurnsStarveNobody) {
  TurnQueue queue;
  std::array<int, 5> turns{};
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  for (int& own : turns) {
    threads.emplace_back([&] {
      for (int i = 0; i < 4; ++i) {
        if (!queue.begin(200ms)) {
          ++refused;
          return;
        }
        std::this_thread::sleep_for(60ms);
        ++own;
        queue.end();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(refused, 0);
  for (const int own : turns) EXPECT_EQ(own, 4);
}

// Who has just had a turn goes to the end, however quick it is.
TEST(TurnQueue, TurnsGoInTheOrderOfComing) {
  TurnQueue queue;
  queue.begin();
  std::mutex mutex;
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 3; ++i) {
        queue.begin();
        {
          const std::lock_guard lock(mutex);
          order.push_back(t);
        }
        std::this_thread::sleep_for(20ms);  // the others are in the queue again
        queue.end();
      }
    });
    std::this_thread::sleep_for(20ms);
  }
  queue.end();
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2}));
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

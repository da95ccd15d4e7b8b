// Faults that other systems have had, as cases of a whole cluster of thread ranks. docs/cases.md says what each number
// is.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <set>

#include "ops/ag_gemm/call_fixture.h"

namespace tilewire::ag_gemm {
namespace {

using Clock = std::chrono::steady_clock;

TestCall call_of(uint64_t salt) { return {.rows = {20, 0, 7, 33}, .k = 24, .cols = {16}, .salt = salt}; }

// Signals that arrive 5 ms late meet the next call, which has other data and uses the same flags.
TEST(Cases, B18SignalsOfOneCallThatLandInTheNextDoNoHarm) {
  for (const char* personality : {"rc", "srd"}) {
    Options options = test_options();
    options.emulated_personality = personality;
    options.fault = "delay:us=5000";
    SCOPED_TRACE(personality);
    run_and_check({2, 2}, options, {call_of(1), call_of(2), call_of(3), call_of(4)});
  }
}

// Ranks take and give back user memory in different orders, so the same offset means other tensors on other ranks.
TEST(Cases, B71UserMemoryTakenInDifferentOrdersIsNeverMixedUp) {
  constexpr uint64_t kRounds = 100;
  const auto outcomes = run_thread_cluster({2, 1}, test_options(), [](Session& session) {
    Operation op(session);
    for (uint64_t round = 0; round < kRounds; ++round) {
      TestCall call = call_of(round);
      call.rows = {20, 7, 33};
      CallChecker checker(call, session.rank().value);
      Arguments args = checker.arguments();
      const int64_t bytes = args.a.rows * args.a.cols * size_bytes(args.a.dtype);
      std::byte* other = nullptr;
      if ((session.rank().value + static_cast<int32_t>(round)) % 2 == 0) other = session.allocate_user(4096 * 3);
      std::byte* placed = session.allocate_user(bytes);
      if (other == nullptr) other = session.allocate_user(4096 * 3);
      if (bytes > 0) std::memcpy(placed, args.a.data, static_cast<size_t>(bytes));
      args.a.data = placed;
      op.run(args);
      ASSERT_NO_FATAL_FAILURE(checker.check()) << "round " << round;
      session.free_user(placed);
      session.free_user(other);
    }
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(Cases, B79CloseWithoutACallAndTwiceIsQuick) {
  const auto begin = Clock::now();
  const auto outcomes = run_thread_cluster({2, 2}, test_options(), [](Session& session) {
    session.close();
    session.close();
  });
  EXPECT_EQ(first_error(outcomes), "");
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(15)) << "creation and both closes";
}

struct Link {
  int32_t from = 0;
  int32_t to = 0;
  auto operator<=>(const Link&) const = default;
};

// Where only NICs of one rail reach each other, all that goes between nodes must be on a rail.
TEST(Cases, B102TrafficBetweenNodesStaysOnItsRail) {
  for (const std::vector<int32_t>& layout : std::vector<std::vector<int32_t>>{{2, 2}, {2, 3}, {3, 1}, {1, 1, 2}}) {
    std::vector<std::pair<int32_t, int32_t>> place;  // node and local rank, by rank
    for (size_t n = 0; n < layout.size(); ++n) {
      for (int32_t l = 0; l < layout[n]; ++l) place.emplace_back(static_cast<int32_t>(n), l);
    }
    TestCall call = {.rows = {}, .k = 32, .cols = {8}};
    for (size_t r = 0; r < place.size(); ++r) call.rows.push_back(24 + static_cast<int64_t>(r));
    std::mutex mutex;
    std::set<Link> used;
    const auto outcomes = run_thread_cluster(layout, test_options(), [&](Session& session) {
      Operation op(session);
      CallChecker checker(call, session.rank().value);
      op.run(checker.arguments());
      checker.check();
      const std::lock_guard lock(mutex);
      for (const PeerTotals& peer : session.proxy()->totals().peers) {
        if (peer.requests > 0) used.insert({session.rank().value, peer.peer.value});
      }
    });
    ASSERT_EQ(first_error(outcomes), "") << testing::PrintToString(layout);
    EXPECT_FALSE(used.empty());
    const auto is_partner = [&](int32_t of, int32_t who) {
      const auto [node, local] = place[static_cast<size_t>(who)];
      return local == place[static_cast<size_t>(of)].second % layout[static_cast<size_t>(node)];
    };
    for (const Link& link : used) {
      EXPECT_TRUE(is_partner(link.from, link.to) || is_partner(link.to, link.from))
          << testing::PrintToString(layout) << ": rank " << link.from << " sent to rank " << link.to;
    }
  }
}

}  // namespace
}  // namespace tilewire::ag_gemm

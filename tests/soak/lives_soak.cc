// Communicators created, used and closed again and again: nothing may grow, neither where ranks are threads nor where
// they are processes.
#include <gtest/gtest.h>
#include <op_random_calls.h>
#include <tilewire/error.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "memory/forked_child.h"
#include "ops/op_list.h"
#include "soak/process_state.h"
#include "soak/soak_networks.h"
#include "soak/soak_run.h"
#include "testing/op_test_support.h"
#include "testing/sanitized.h"
#include "transport/bootstrap/bootstrap_fixture.h"

namespace tilewire {
namespace {

constexpr int kFewLives = kIsSanitized ? 3 : 6;
int lives() { return soak_run().is_long ? static_cast<int>(soak_run().of_that_many(500)) : kFewLives; }
// Each network has been begun by then, and heaps and stack caches have come to their size.
int lives_before_measuring() { return soak_run().is_long ? 20 : kIsSanitized ? 3 : 5; }

constexpr int32_t kRanks = 4;
const std::vector<int32_t> kLayout = {2, 2};

// Each life over another network.
Options options_of(int life) {
  const std::vector<Options> networks = part_if_sanitized(soak_networks());
  return networks[static_cast<size_t>(life) % networks.size()];
}
void use_own_device(Rank rank, Options& options) { use_device_of_node(node_of(kLayout, rank.value), options); }

// Throws when a result is wrong, also in a process without the test's reporting.
template <class Op>
void use_op(OpCalls<Op>& calls, typename OpTestTraits<Op>::Checker checker) {
  calls.run(checker.arguments());
  checker.check();
  if (testing::Test::HasFailure()) throw Error(ErrorKind::internal, {.what = "a result is wrong"});
}

// Calls of each op in turn, of sizes that follow each other in another order in every second life.
template <class... Op>
void use_all(OpTypes<Op...>, Session& session, int life) {
  OpObjects<Ops> ops(session);
  const Rank rank = session.rank();
  for (int i = life; i < life + 2; ++i) {
    (use_op<Op>(ops.get<Op>(), i % 2 == 0 ? OpTestTraits<Op>::small(rank) : OpTestTraits<Op>::other(rank)), ...);
    (use_op<Op>(ops.get<Op>(), OpTestTraits<Op>::busy(rank)), ...);
  }
}

void use(Session& session, int life) { use_all(Ops{}, session, life); }

void live_on_threads(int life) {
  const auto outcomes = run_thread_cluster(
      kLayout, options_of(life), [&](Session& session) { use(session, life); }, use_own_device);
  ASSERT_EQ(first_error(outcomes), "") << "life " << life << " over " << network_text(options_of(life));
}

TEST(LivesSoak, ThreadRanksLeaveNothingBehind) {
  int life = 0;
  for (; life < lives_before_measuring(); ++life) ASSERT_NO_FATAL_FAILURE(live_on_threads(life));
  const ProcessState before = ProcessState::now();
  for (; life < lives_before_measuring() + lives(); ++life) ASSERT_NO_FATAL_FAILURE(live_on_threads(life));
  EXPECT_EQ(lasting_growth(before, {}), "") << "after " << lives() << " lives";
}

void live_as_process(int32_t rank, const std::string& address, int life) {
  SessionSetup setup;
  setup.options = options_of(life);
  setup.options.rank = rank;
  setup.options.world_size = kRanks;
  setup.options.layout = "2,2";
  setup.options.rendezvous = address;
  setup.options.secret = "a secret of this soak";
  use_own_device(Rank{rank}, setup.options);
  const std::unique_ptr<Session> session = Session::create(setup);
  use(*session, life);
  session->close();
}

// What rank `rank` does; 0 when all went well. One address serves all lives: a port that stays taken would show.
int live_all(int32_t rank, const std::string& address) {
  alarm(3600);
  try {
    int life = 0;
    for (; life < lives_before_measuring(); ++life) live_as_process(rank, address, life);
    const ProcessState before = ProcessState::now();
    for (; life < lives_before_measuring() + lives(); ++life) live_as_process(rank, address, life);
    const std::string grown = lasting_growth(before, {});
    if (grown.empty()) return 0;
    std::fprintf(stderr, "rank %d after %d lives: %s", rank, lives(), grown.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  return 1;
}

TEST(LivesSoak, ProcessRanksLeaveNothingBehind) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not see what words of other processes order, such as who may use a slot again";
#endif
  const std::string address = free_address();
  const ProcessState before = ProcessState::now();
  {
    std::vector<std::unique_ptr<ForkedChild>> ranks;
    for (int32_t r = 0; r < kRanks; ++r) {
      ranks.push_back(std::make_unique<ForkedChild>([&, r] { return live_all(r, address); }));
    }
    for (int32_t r = 0; r < kRanks; ++r) EXPECT_EQ(ranks[static_cast<size_t>(r)]->wait(), 0) << "rank " << r;
  }
  EXPECT_EQ(lasting_growth(before, {}), "") << "in the process that started the ranks";
}

// What the two above rely on: each kind of leak is seen.
TEST(LivesSoak, EveryLeakIsNamed) {
  const ProcessState before = {10, 3, 100, 4, 0, 1 << 20};
  EXPECT_EQ(growth(before, before, {}), "");
  const auto names = [&](int64_t ProcessState::*field, int64_t by, const std::string& what) {
    ProcessState after = before;
    after.*field += by;
    EXPECT_EQ(growth(before, after, {}).rfind(what, 0), 0u) << what;
  };
  names(&ProcessState::descriptors, 1, "descriptors");
  names(&ProcessState::threads, 1, "threads");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  names(&ProcessState::mappings, 25, "mappings");
#endif
  names(&ProcessState::arena_mappings, 1, "mappings of memory files");
  names(&ProcessState::shared_names, 1, "names in /dev/shm");
  const UniqueFd leaked(::dup(0));
  const ProcessState now = ProcessState::now();
  const UniqueFd another(::dup(0));
  EXPECT_EQ(growth(now, ProcessState::now(), {}).rfind("descriptors grew", 0), 0u);
}

}  // namespace
}  // namespace tilewire

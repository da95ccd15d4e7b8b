// All operations on CPU ranks over the RC transport, on 2 nodes of 2 ranks, each node with a device of its own; and what
// they say when the network or a rank goes in the middle of a call. Runs in the guest.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "guest_wire.h"
#include "memory/forked_child.h"
#include "op_random_calls.h"
#include "ops/op_list.h"
#include "schedule/wire.h"
#include "testing/network_op_cases.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

Options rc_test_options() {
  Options options = test_options();
  options.transport = "rc";
  options.rc_timeout = 14;
  options.arena_initial_bytes = 4096;  // so that it grows, and keys of the new memory have to travel
  return options;
}

// Ranks of a node use its device; the first two of four are node 0.
void use_device_of_node(Rank rank, Options& options) { options.rc_device = guest_device(rank.value / 2); }

template <class Op>
class OpsOverRc : public ::testing::Test {};
TYPED_TEST_SUITE(OpsOverRc, TestTypes<Ops>::Types, OpName);

TYPED_TEST(OpsOverRc, EveryElementIsRightHoweverChunksAreAnnounced) {
  // Calls that begin at the edge of what an immediate has of an epoch, or half of a word.
  for (const auto& [signal, first] :
       {std::pair{"immediate", (int64_t{1} << kImmediateEpochBits) - 2}, std::pair{"ordered", (int64_t{1} << 32) - 2},
        std::pair{"completion", (int64_t{1} << 32) - 2}}) {
    Options options = rc_test_options();
    options.rc_signal = signal;
    options.first_epoch = first;
    EXPECT_EQ(first_error(run_calls_of_all_sizes<TypeParam>(options, use_device_of_node)), "") << signal;
  }
}

TYPED_TEST(OpsOverRc, EveryElementIsRightWithShortQueuesAndLostPackets) {
  Options options = rc_test_options();
  options.rc_send_entries = options.rc_receive_entries = 16;
  options.rc_channels = 2;
  options.ring_entries = 16;
  options.first_epoch = (int64_t{1} << (kImmediateEpochBits - 1)) - 2;  // where half its range is passed
  const WireFault fault("loss 1%");
  EXPECT_EQ(first_error(run_calls_of_all_sizes<TypeParam>(options, use_device_of_node)), "");
}

TYPED_TEST(OpsOverRc, EveryElementIsRightOverSeveralNicsOfEachRank) {
  Options options = rc_test_options();
  options.nics = 2;
  EXPECT_EQ(first_error(run_calls_of_all_sizes<TypeParam>(
                options, [](Rank rank, Options& own) { own.rc_device = guest_devices_of_node(rank.value / 2); })),
            "");
}

TYPED_TEST(OpsOverRc, APathThatIsLostInACallEndsItOnAllRanksByName) {
  Options options = rc_test_options();
  options.rc_retries = 1;
  options.deadline_s = 1000;  // longer than the guest may take: the network has to say it
  std::optional<WireFault> fault;
  const auto outcomes = run_thread_cluster(
      {2, 2}, options,
      [&](Session& session) {
        OpCalls<TypeParam> op(session);
        run_good(op, session.rank());
        if (session.rank() == Rank{3}) fault.emplace("loss 100%");
        for (int i = 0; i < 100; ++i) run_good(op, session.rank());
      },
      use_device_of_node);
  expect_everywhere(outcomes, ErrorKind::aborted, {"a request to rank", "transport = rc", "does not answer"});
}

TEST(RcNicsInACall, OneThatDiesEndsItOnAllRanksByName) {
  Options options = rc_test_options();
  options.nics = 2;
  options.rc_retries = 1;
  options.deadline_s = 20;
  std::optional<PortDown> down;
  const auto outcomes = run_thread_cluster(
      {2, 2}, options,
      [&](Session& session) {
        OpCalls<ag_gemm::Op> op(session);
        run_good(op, session.rank());
        if (session.rank() == Rank{3}) down.emplace(3);  // one of node 1
        for (int i = 0; i < 100; ++i) run_good(op, session.rank());
      },
      [](Rank rank, Options& own) { own.rc_device = rank.value < 2 ? "rxe0,rxe2" : "rxe1,rxe3"; });
  expect_everywhere(outcomes, ErrorKind::aborted, {"a request to rank", "NIC 2 of 2, rxe"});
}

// What the other networks have for each operation, for one: the guest is slow, and no fault is an operation's own.
TEST(RcFaults, AFailedRequestEndsTheCallOnAllRanks) {
  expect_that_a_failed_request_ends_the_call<ag_gemm::Op>(rc_test_options(), use_device_of_node);
}
TEST(RcFaults, AProxyThreadThatDiesEndsTheCallOnAllRanks) {
  expect_that_a_dead_proxy_ends_the_call<ag_gemm::Op>(rc_test_options(), use_device_of_node);
}
TEST(RcFaults, ANetworkThatStallsForAWhileOnlyDelays) {
  expect_that_a_stall_only_delays<ag_gemm::Op>(rc_test_options(), use_device_of_node);
}
TEST(RcFaults, ATransportThatTakesNothingForAWhileOnlyDelays) {
  expect_that_a_full_queue_only_delays<ag_gemm::Op>(rc_test_options(), use_device_of_node);
}

// When and how rank 3 ends; without a signal it does not.
struct Fate {
  int signal = 0;
  std::chrono::milliseconds into_creation{-1};  // so long after its beginning; negative: in the middle of a call
};

void end_this_process(Fate fate, std::chrono::milliseconds when) {
  std::thread([=] {
    std::this_thread::sleep_for(when);
    kill(getpid(), fate.signal);
  }).detach();
}

// Ranks as processes, which may live for a minute. 10: the loss of rank 3 was named, where it died by the news of that.
int run_process(int32_t rank, int port, Fate fate) {
  Options options = rc_test_options();
  options.rank = rank;
  options.world_size = 4;
  options.layout = "2,2";
  options.rendezvous = fmt::format("127.0.0.1:{}", port);
  options.secret = "no secret from anybody";
  if (fate.into_creation.count() >= 0) options.connect_deadline_s = 25;
  if (fate.signal == SIGKILL) options.death_s = options.deadline_s = 1000;
  use_device_of_node(Rank{rank}, options);
  using Op = ag_gemm::Op;
  const bool is_doomed = rank == 3 && fate.signal != 0;
  try {
    if (is_doomed && fate.into_creation.count() >= 0) end_this_process(fate, fate.into_creation);
    const auto session = Session::create({.options = options, .threads = {}});
    OpCalls<Op> op(*session);
    run_good(op, Rank{rank}, 3);
    if (is_doomed && fate.into_creation.count() < 0) end_this_process(fate, 20ms);
    if (fate.signal != 0) run_good(op, Rank{rank}, 100'000);
    session->close();
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool is_lost = error.kind() == ErrorKind::peer_lost && text.find("rank 3") != std::string::npos;
    // On a very slow machine it had not even come.
    const bool is_missed =
        error.kind() == ErrorKind::deadline && text.find("rank 3 did not come to the rendezvous") != std::string::npos;
    if (is_lost || is_missed) return 10;
    fprintf(stderr, "rank %d: %s\n", rank, text.c_str());
    return 1;
  }
  return ::testing::Test::HasFailure() ? 2 : 0;
}

std::vector<int> run_processes(int port, Fate fate = {}) {
  std::vector<std::unique_ptr<ForkedChild>> ranks;
  for (int32_t r = 0; r < 4; ++r) {
    ranks.push_back(std::make_unique<ForkedChild>([=] { return run_process(r, port, fate); }));
  }
  std::vector<int> codes;
  for (int r = 0; r < 3; ++r) codes.push_back(ranks[static_cast<size_t>(r)]->wait());
  if (fate.signal != 0) ranks[3]->kill_now();  // one that was stopped never ends
  codes.push_back(ranks[3]->wait());
  return codes;
}

// What processes hold of the guest's devices: contexts and registered memory, as the kernel counts them.
int held_of_devices() {
  int held = 0;
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen("rdma resource show", "r"), pclose);
  char line[512];
  while (pipe != nullptr && fgets(line, sizeof(line), pipe.get()) != nullptr) {
    for (const char* kind : {" mr ", " ctx "}) {
      if (const char* at = std::strstr(line, kind)) held += std::atoi(at + std::strlen(kind));
    }
  }
  return held;
}

TEST(RcProcesses, AKilledRankIsNamedByAllOthersAndTheNextRunWorks) {
  EXPECT_EQ(run_processes(29511, {.signal = SIGKILL}), (std::vector<int>{10, 10, 10, -SIGKILL}));
  EXPECT_EQ(run_processes(29512), (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(held_of_devices(), 0);
}

// Wherever in the creation that is on a busy machine, or behind it: one that has connected but never answers is silent.
TEST(RcProcesses, ARankThatDiesOrFallsSilentWhileAllConnectIsNamedInTime) {
  int port = 29520;
  for (const Fate& fate : {Fate{SIGKILL, 400ms}, Fate{SIGSTOP, 400ms}}) {
    EXPECT_EQ(run_processes(port++, fate), (std::vector<int>{10, 10, 10, -SIGKILL}))
        << "signal " << fate.signal << " after " << fate.into_creation.count() << " ms";
  }
  EXPECT_EQ(held_of_devices(), 0);
}

}  // namespace
}  // namespace tilewire

// All operations on CPU ranks over the RC transport, on 2 nodes of 2 ranks, each node with a device of its own; and what
// they say when the network or a rank goes in the middle of a call. Runs in the guest.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>

#include "guest_wire.h"
#include "memory/forked_child.h"
#include "op_random_calls.h"
#include "ops/op_list.h"
#include "schedule/wire.h"
#include "testing/network_op_cases.h"
#include "testing/sanitized.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

Options rc_test_options() {
  Options options = test_options();
  options.transport = "rc";
  options.rc_timeout = 14;
  if (kIsSanitized) options.connect_deadline_s = 120;  // a busy machine takes most of a minute
  options.arena_initial_bytes = 4096;                  // so that it grows, and keys of the new memory have to travel
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
  for (int round = 0; round < 10 && fault.dropped() == 0; ++round) {
    ASSERT_EQ(first_error(run_calls_of_all_sizes<TypeParam>(options, use_device_of_node)), "");
  }
  EXPECT_GT(fault.dropped(), 0);
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

// Of one operation: the guest is slow. That of all of them is over devices that play RoCE (tests/roce).
struct SoftRoce {
  static Options options() { return rc_test_options(); }
  static void adjust(Rank rank, Options& options) { use_device_of_node(rank, options); }
};
using OneOpOverSoftRoce = OnNetwork<SoftRoce, ag_gemm::Op>;
INSTANTIATE_TYPED_TEST_SUITE_P(Rc, NetworkFaults, ::testing::Types<OneOpOverSoftRoce>, OpName);

// What a process holds of the guest's devices, as the kernel lists it: so many of each kind.
std::map<std::string, int> held_of_devices(pid_t process) {
  std::map<std::string, int> held;
  for (const char* kind : {"ctx", "pd", "cq", "qp", "mr"}) {
    std::istringstream lines(output_of(fmt::format("rdma resource show {}", kind)));
    int& count = held[kind];
    for (std::string line; std::getline(lines, line);) {
      count += (line + " ").find(fmt::format(" pid {} ", process)) != std::string::npos ? 1 : 0;
    }
  }
  return held;
}

int held_in_all(pid_t process) {
  int all = 0;
  for (const auto& [kind, count] : held_of_devices(process)) all += count;
  return all;
}

// When and how rank 3 ends; without a signal it does not.
struct Fate {
  int signal = 0;
  bool is_in_creation = false;  // as soon as it has a queue pair; else in the middle of a call
};

void end_this_process(Fate fate) {
  std::thread([=] {
    if (fate.is_in_creation) {
      while (held_of_devices(getpid())["qp"] == 0) std::this_thread::sleep_for(1ms);
    } else {
      std::this_thread::sleep_for(20ms);
    }
    kill(getpid(), fate.signal);
  }).detach();
}

// Ranks as processes, which may live for a minute. 10: the loss of rank 3 was named, where it died by the news of that.
// 3: something of the device was left when the communicator was gone; 4: there was nothing of it before.
int run_process(int32_t rank, int port, Fate fate) {
  Options options = rc_test_options();
  options.rank = rank;
  options.world_size = 4;
  options.layout = "2,2";
  options.rendezvous = fmt::format("127.0.0.1:{}", port);
  options.secret = "no secret from anybody";
  if (fate.is_in_creation) options.connect_deadline_s = 25;
  if (fate.signal == SIGKILL) options.death_s = options.deadline_s = 1000;
  use_device_of_node(Rank{rank}, options);
  using Op = ag_gemm::Op;
  const bool is_doomed = rank == 3 && fate.signal != 0;
  try {
    if (is_doomed && fate.is_in_creation) end_this_process(fate);
    const auto session = Session::create({.options = options, .threads = {}});
    OpCalls<Op> op(*session);
    run_good(op, Rank{rank}, 3);
    if (is_doomed && !fate.is_in_creation) end_this_process(fate);
    if (fate.signal != 0) run_good(op, Rank{rank}, 100'000);
    for (const auto& [kind, count] : held_of_devices(getpid())) {
      if (count == 0) return 4;
    }
    session->close();
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool is_lost = error.kind() == ErrorKind::peer_lost && text.find("rank 3") != std::string::npos;
    if (is_lost) return held_in_all(getpid()) == 0 ? 10 : 3;
    fprintf(stderr, "rank %d: %s\n", rank, text.c_str());
    return 1;
  }
  if (held_in_all(getpid()) > 0) return 3;
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

TEST(RcProcesses, AKilledRankIsNamedByAllOthersAndTheNextRunWorks) {
  EXPECT_EQ(run_processes(29511, {.signal = SIGKILL}), (std::vector<int>{10, 10, 10, -SIGKILL}));
  EXPECT_EQ(run_processes(29512), (std::vector<int>{0, 0, 0, 0}));
}

// Wherever in the creation that is on a busy machine, once it has queue pairs, or behind it: one that has connected but
// never answers is silent.
TEST(RcProcesses, ARankThatDiesOrFallsSilentWhileAllConnectIsNamedInTime) {
  int port = 29520;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    EXPECT_EQ(run_processes(port++, {signal, true}), (std::vector<int>{10, 10, 10, -SIGKILL})) << "signal " << signal;
  }
}

}  // namespace
}  // namespace tilewire

// All operations on CPU ranks over SRD, on 2 nodes of 2 ranks: packets and completions come in any order. What holds over
// the other networks holds here.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <limits>
#include <optional>
#include <stdexcept>
#include <thread>
#include <tuple>

#include "base/hash.h"
#include "executor/call.h"
#include "fake_verbs/control.h"
#include "memory/forked_child.h"
#include "op_random_calls.h"
#include "ops/op_list.h"
#include "soak/process_state.h"
#include "testing/given_time.h"
#include "testing/network_op_cases.h"
#include "testing/sanitized.h"
#include "transport/bootstrap/held_port.h"
#include "transport/error_text.h"

namespace tilewire {
namespace {

using namespace std::chrono_literals;

Options srd_test_options() {
  Options options = FakeVerbs::over("srd", test_options());
  options.arena_initial_bytes = 4096;  // so that it grows: keys have to travel, and chunks lie across two of them
  return options;
}

template <class Op>
class OpsOverSrd : public ::testing::Test {
 protected:
  static void expect_right(const Options& options) { EXPECT_EQ(first_error(run_calls_of_all_sizes<Op>(options)), ""); }
};
TYPED_TEST_SUITE(OpsOverSrd, TestTypes<Ops>::Types, OpName);

TYPED_TEST(OpsOverSrd, EveryElementIsRightHoweverPacketsAndCompletionsAreShuffled) {
  const int64_t overtaken = FakeVerbs::count("overtaken");
  for (const char* seed : {"seed=1", "seed=2,packet_bytes=64", "seed=3,window=64,held=32", "seed=4,held=0"}) {
    const FakeVerbsSetting setting(seed, "seed=1,packet_bytes=8192,window=16,held=8");
    OpsOverSrd<TypeParam>::expect_right(srd_test_options());
  }
  EXPECT_GT(FakeVerbs::count("overtaken"), overtaken) << "nothing came out of order";
  EXPECT_EQ(FakeVerbs::count("overflows"), 0);
  EXPECT_EQ(FakeVerbs::count("refused"), 0);
  EXPECT_EQ(FakeVerbs::held(), 0);
}

TYPED_TEST(OpsOverSrd, EveryElementIsRightWithShortQueuesReceivesAndARelay) {
  Options options = srd_test_options();
  options.srd_send_entries = options.srd_receive_entries = 16;
  options.srd_channels = 2;
  options.srd_unsolicited = "off";
  options.ring_entries = 16;
  options.arrivals = "relay";
  OpsOverSrd<TypeParam>::expect_right(options);
  EXPECT_EQ(FakeVerbs::count("not_ready"), 0) << "credits did not keep senders from receivers that are not ready";
}

TYPED_TEST(OpsOverSrd, AFullQueueOfTheDeviceIsBackPressure) {
  const int64_t before = FakeVerbs::count("enomem");
  const FakeVerbsSetting setting("enomem_every=3", "enomem_every=0");
  OpsOverSrd<TypeParam>::expect_right(srd_test_options());
  EXPECT_GT(FakeVerbs::count("enomem"), before);
}

// Of an immediate ten or eleven bits are the epoch's; of a word in memory all 64.
TYPED_TEST(OpsOverSrd, EpochsAtTheEdgesOfTheirNarrowFieldsAreThoseMeant) {
  for (const int64_t first : {(int64_t{1} << 10) - 2, (int64_t{1} << 11) - 2, (int64_t{1} << 32) - 2}) {
    Options options = srd_test_options();
    options.first_epoch = first;
    OpsOverSrd<TypeParam>::expect_right(options);
  }
}

struct FakeEfa {
  static Options options() { return srd_test_options(); }
  static void adjust(Rank, Options&) {}
};
using AllOverFakeEfa = OnNetworkTypes<FakeEfa, Ops>::Types;
INSTANTIATE_TYPED_TEST_SUITE_P(Srd, NetworkFaults, AllOverFakeEfa, OpName);

TYPED_TEST(OpsOverSrd, ARequestThatTheDeviceGivesUpNamesItsPeerAndTheCodeOnAllRanks) {
  const FakeVerbsSetting setting("fail_nth=60,fail_code=8", "fail_nth=0");
  const auto outcomes = run_good_calls<TypeParam>(srd_test_options(), 50, {});
  expect_everywhere(outcomes, ErrorKind::aborted, {"a request to rank", "transport = srd", "EFA code 8"});
}

// One call of an op, again and again: elements are compared the first time, then bits.
template <class Op>
class RepeatedCall {
 public:
  explicit RepeatedCall(Session& session) : op_(session), checker_(OpTestTraits<Op>::small(session.rank())) {}

  void run() {
    for (OwnedMatrix& result : checker_.results()) result.fill(std::numeric_limits<float>::quiet_NaN());
    op_.run(checker_.arguments());
    if (first_.empty()) {
      checker_.check();
      for (const OwnedMatrix& result : checker_.results()) first_.push_back(result.bytes());
    }
    for (size_t i = 0; i < first_.size(); ++i) {
      if (checker_.results()[i].bytes() != first_[i])
        throw std::runtime_error(std::string("other bits of ") + Op::kName);
    }
  }

 private:
  OpCalls<Op> op_;
  typename OpTestTraits<Op>::Checker checker_;
  std::vector<std::vector<std::byte>> first_;
};

template <class... Op>
void run_in_turn(OpTypes<Op...>, Session& session, int times) {
  std::tuple<RepeatedCall<Op>...> calls{RepeatedCall<Op>(session)...};
  for (int i = 0; i < times; ++i) (std::get<RepeatedCall<Op>>(calls).run(), ...);
}

// Each packet of a chunk by itself, more under way than a call has, and now and then a full queue.
TEST(SrdCalls, TenThousandOfAllOpsHaveTheSameBitsHoweverPacketsAndCompletionsAreShuffled) {
  const FakeVerbsSetting setting("seed=7,packet_bytes=64,window=64,enomem_every=50",
                                 "seed=1,packet_bytes=8192,window=16,enomem_every=0");
  const int times = kIsSanitized ? 100 : 2000;  // of five ops or more
  const int64_t overtaken = FakeVerbs::count("overtaken");
  const auto outcomes =
      run_thread_cluster({2, 2}, srd_test_options(), [&](Session& session) { run_in_turn(Ops{}, session, times); });
  EXPECT_EQ(first_error(outcomes), "");
  EXPECT_GT(FakeVerbs::count("overtaken") - overtaken, 5 * times) << "too little came out of order";
  EXPECT_EQ(FakeVerbs::count("overflows"), 0);
  EXPECT_EQ(FakeVerbs::held(), 0);
}

// Told on both before anything is sent, with what to set, and nothing is left.
TEST(SrdModes, UnsolicitedReceivesOnOneOfTwoDevicesAloneAreAMismatchOnBothRanks) {
  const FakeVerbsSetting setting("solicited=2", "solicited=0");
  const auto device_of_its_own = [](Rank rank, Options& own) { own.srd_device = rank == Rank{0} ? "efa0" : "efa1"; };
  const auto outcomes = run_thread_cluster(
      {1, 1}, srd_test_options(), [](Session&) { ADD_FAILURE() << "they were joined"; }, device_of_its_own);
  expect_everywhere(outcomes, ErrorKind::mismatch,
                    {"have different ways to take immediates", "set srd_unsolicited=off on all ranks"});
  EXPECT_EQ(FakeVerbs::held(), 0);
  Options options = srd_test_options();
  options.srd_unsolicited = "off";
  EXPECT_EQ(first_error(run_thread_cluster(
                {1, 1}, options, [](Session&) {}, device_of_its_own)),
            "");
}

// The memory is there and the device does not know it: who asks again gets some that it knows.
TEST(SrdGrowth, MemoryWhoseRegistrationIsRefusedIsNotHandedOutUntilItIsRegistered) {
  const auto outcomes = run_thread_cluster({2, 2}, srd_test_options(), [](Session& session) {
    OpCalls<ag_gemm::Op> op(session);
    run_good(op, session.rank());
    if (session.rank() == Rank{0}) {
      const int64_t before = FakeVerbs::count("mr");
      {
        const FakeVerbsSetting setting("refuse=reg_mr:0:12", "refuse=none:0");
        const Error error = error_of([&] { session.allocate_user(100'000); });
        EXPECT_EQ(error.kind(), ErrorKind::resource);
        EXPECT_SAYS(error, "Cannot allocate memory");
      }
      {
        const FakeVerbsSetting setting("refuse=reg_mr:0:12", "refuse=none:0");
        EXPECT_EQ(error_of([&] { session.allocate_user(100'000); }).kind(), ErrorKind::resource);
      }
      EXPECT_EQ(FakeVerbs::count("mr"), before);
      session.free_user(session.allocate_user(100'000));
      EXPECT_EQ(FakeVerbs::count("mr"), before + 1);
    }
    session.control().barrier("looked", session.deadline());
    run_good(op, session.rank());
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(SrdGrowth, ARegistrationThatIsRefusedInACallIsNamedOnAllRanks) {
  std::optional<FakeVerbsSetting> setting;
  const auto outcomes = run_thread_cluster({2, 2}, srd_test_options(), [&](Session& session) {
    OpCalls<ag_gemm::Op> op(session);
    run_good(op, session.rank());
    if (session.rank() == Rank{0}) setting.emplace("refuse=reg_mr:0:12", "refuse=none:0");
    session.control().barrier("set", session.deadline());
    Call call(session, "growth");
    call.begin(std::make_shared<CallText>(plain_text("growth")));
    call.agree("plan", hash64("more"), 1 << 20);
  });
  expect_everywhere(outcomes, ErrorKind::resource, {"bytes: Cannot allocate memory"});
}

// What this process holds of devices and maps of arenas.
std::string held_text() {
  return fmt::format("{} handles of devices, {} mappings of memory files", FakeVerbs::held(),
                     ProcessState::now().arena_mappings);
}

enum class End { none, in_a_call, while_paths_are_tried, silent_while_paths_are_tried };

// This process, as soon as its first packet has been sent, which nobody will answer.
void end_at_first_probe(int signal) {
  FakeVerbs::set("mute=3");
  std::thread([signal] {
    while (FakeVerbs::count("posted") == 0) std::this_thread::sleep_for(1ms);
    kill(getpid(), signal);
  }).detach();
}

// Ranks as processes, each with devices of its own; rank 3 kills itself where it is to. 10: it was named, and by the
// news of its death: no other limit passes while the process may live.
int run_process(int32_t rank, int port, End end_of_3, std::chrono::milliseconds silence) {
  Options options = srd_test_options();
  options.rank = rank;
  options.world_size = 4;
  options.layout = "2,2";
  options.rendezvous = fmt::format("127.0.0.1:{}", port);
  options.secret = "no secret from anybody";
  options.death_s = options.deadline_s = options.connect_deadline_s = 1000;
  using Op = ag_gemm::Op;
  const bool one_dies = end_of_3 == End::in_a_call;
  const bool is_silent = end_of_3 == End::silent_while_paths_are_tried;
  if (is_silent) {
    options.death_s = std::chrono::duration<double>(silence).count();
    options.heartbeat_ms = 100;
  }
  if (is_silent || end_of_3 == End::while_paths_are_tried) {
    FakeVerbs::set("gone_ms=60000,silent_ms=60000");
    if (rank == 3) end_at_first_probe(is_silent ? SIGSTOP : SIGKILL);
  }
  const std::string before = held_text();
  try {
    const auto session = Session::create({.options = options, .threads = {}});
    OpCalls<Op> op(*session);
    run_good(op, Rank{rank}, 3);
    if (one_dies && rank == 3) {
      std::thread killer([] {
        std::this_thread::sleep_for(20ms);
        kill(getpid(), SIGKILL);
      });
      for (;;) run_good(op, Rank{rank});
    }
    if (one_dies) run_good(op, Rank{rank}, 100000);
    session->close();
  } catch (const Error& error) {
    const std::string text = error.what();
    const bool is_named = error.kind() == ErrorKind::peer_lost && text.find("rank 3") != std::string::npos;
    if (is_named && held_text() == before) return 10;
    fprintf(stderr, "rank %d: %s\nleft: %s; before: %s\n", rank, text.c_str(), held_text().c_str(), before.c_str());
    return is_named ? 3 : 1;
  }
  return ::testing::Test::HasFailure() ? 2 : 0;
}

TEST(SrdProcesses, AKilledRankIsNamedByAllOthersWhichLetAllGoAndTheNextRunWorks) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "it cannot follow threads that a forked child starts";
#endif
  const auto run_all = [](End end_of_3, std::chrono::milliseconds silence = {}) {
    const HeldPort port;
    std::vector<std::unique_ptr<ForkedChild>> ranks;
    for (int32_t r = 0; r < 4; ++r) {
      ranks.push_back(
          std::make_unique<ForkedChild>([&, r] { return run_process(r, port.number(), end_of_3, silence); }));
    }
    std::vector<int> codes;
    for (int r = 0; r < 3; ++r) codes.push_back(ranks[static_cast<size_t>(r)]->wait());
    if (end_of_3 == End::silent_while_paths_are_tried) ranks[3]->kill_now();
    codes.push_back(ranks[3]->wait());
    return codes;
  };
  EXPECT_EQ(run_all(End::in_a_call), (std::vector<int>{10, 10, 10, -SIGKILL}));
  EXPECT_EQ(run_all(End::while_paths_are_tried), (std::vector<int>{10, 10, 10, -SIGKILL}));
  expect_given_time(1s, [&](std::chrono::milliseconds limit) {
    const std::vector<int> codes = run_all(End::silent_while_paths_are_tried, limit);
    const bool is_named = codes == std::vector<int>{10, 10, 10, -SIGKILL};
    return is_named ? "" : fmt::format("of a silent rank 3: {}", fmt::join(codes, ", "));
  });
  EXPECT_EQ(run_all(End::none), (std::vector<int>{0, 0, 0, 0}));
}

}  // namespace
}  // namespace tilewire

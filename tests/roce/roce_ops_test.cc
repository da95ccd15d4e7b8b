// All operations on CPU ranks over RC, on 2 nodes of 2 ranks, on devices that play RoCE: each way to announce chunks, with
// all that goes along with it in threads that sanitizers see. What holds over the other networks holds here.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fake_verbs/control.h"
#include "op_random_calls.h"
#include "ops/op_list.h"
#include "testing/network_op_cases.h"

namespace tilewire {
namespace {

constexpr char kSettings[] = "roce=2,adaptive=1,seed=1,packet_bytes=64,window=16";

Options rc_test_options() {
  FakeVerbs::set(kSettings);
  Options options = FakeVerbs::over("rc", test_options());
  options.arena_initial_bytes = 4096;  // so that it grows: keys have to travel, and chunks lie across two of them
  return options;
}

template <class Op>
class OpsOverRoce : public ::testing::Test {
 protected:
  ~OpsOverRoce() override {
    EXPECT_EQ(FakeVerbs::count("not_ready"), 0) << "credits did not keep senders from receivers that are not ready";
    EXPECT_EQ(FakeVerbs::count("overflows"), 0);
    EXPECT_EQ(FakeVerbs::count("refused"), 0);
    EXPECT_EQ(FakeVerbs::held(), 0);
  }
  static void expect_right(const Options& options) { EXPECT_EQ(first_error(run_calls_of_all_sizes<Op>(options)), ""); }
};
TYPED_TEST_SUITE(OpsOverRoce, TestTypes<Ops>::Types, OpName);

// Data lands in any order but where a word has to come behind it.
TYPED_TEST(OpsOverRoce, EveryElementIsRightHoweverChunksAreAnnounced) {
  for (const char* signal : {"immediate", "completion", "ordered"}) {
    Options options = rc_test_options();
    options.rc_signal = signal;
    if (options.rc_signal == "ordered") FakeVerbs::set("adaptive=0");
    OpsOverRoce<TypeParam>::expect_right(options);
  }
}

TYPED_TEST(OpsOverRoce, EveryElementIsRightWithShortQueuesSeveralNicsAndARelay) {
  Options options = rc_test_options();
  options.rc_send_entries = options.rc_receive_entries = 16;
  options.rc_channels = 2;
  options.nics = 2;
  options.ring_entries = 16;
  options.arrivals = "relay";
  OpsOverRoce<TypeParam>::expect_right(options);
}

// What failed is said, and not that all behind it was flushed. On a fast network: what fails behind a rank's last word to its
// peer is an error once the peer has had time to leave.
TYPED_TEST(OpsOverRoce, ARequestThatTheDeviceGivesUpNamesItsPeerAndTheReasonOnAllRanks) {
  const Options options = rc_test_options();
  const FakeVerbsSetting setting("packet_bytes=8192,fail_nth=60,fail_code=13", "fail_nth=0");
  const auto outcomes = run_good_calls<TypeParam>(options, 50, {});
  expect_everywhere(outcomes, ErrorKind::aborted, {"a request to rank", "transport = rc", "does not answer"});
}

struct FakeRoce {
  static Options options() { return rc_test_options(); }
  static void adjust(Rank, Options&) {}
};
using AllOverFakeRoce = OnNetworkTypes<FakeRoce, Ops>::Types;
INSTANTIATE_TYPED_TEST_SUITE_P(Rc, NetworkFaults, AllOverFakeRoce, OpName);

}  // namespace
}  // namespace tilewire

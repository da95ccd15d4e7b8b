// Calls of different ops one after the other on one arena, in the simulator: those of the list, and a second small op
// whose words and bytes mean other things.
#include <gtest/gtest.h>

#include <op_random_calls.h>

#include <string>
#include <vector>

#include "ops/ag_gemm/random_calls.h"
#include "ops/op_list.h"
#include "testing/hand_over_op.h"

namespace tilewire {
namespace {

std::vector<AddRandomCall> all_ops() {
  std::vector<AddRandomCall> ops = random_calls_of(Ops{});
  ops.push_back(&hand_over::add_random_call);
  return ops;
}

void add_hand_over(OpSimulation& simulation, bool trusts_last_call = false) {
  simulation.add_call<hand_over::RankModel>({.slices = 3, .slice_bytes = 64}, {{.trusts_last_call = trusts_last_call}});
}
void add_gather(OpSimulation& simulation) {
  const ag_gemm::Problem problem{
      .rows = std::vector<int64_t>(static_cast<size_t>(simulation.ranks()), 9), .k = 8, .cols = {12}};
  simulation.add_call<ag_gemm::RankModel>(problem, {{.chunk_rows = 4, .tile_rows = 4, .tile_cols = 8, .cursors = {}}});
}

// Hand over, gather, hand over.
OpSimulation mixed_calls(const Layout& layout, bool trusts_last_call = false) {
  OpSimulation simulation = small_simulation(layout);
  add_hand_over(simulation, trusts_last_call);
  add_gather(simulation);
  add_hand_over(simulation, trusts_last_call);
  return simulation;
}

TEST(OpSequence, RandomSequencesOfFourCallsOfDifferentOpsKeepEveryRule) {
  expect_random_sequences_keep_every_rule(all_ops(), 25);
}

TEST(OpSequence, FaultsOfTheRolesThatAllOpsHaveAreNamedInAMix) {
  expect_faults_of_call_roles_are_named(mixed_calls({2, 2}));
}

// One role, some of whose pieces publish inside the node while others give a command.
TEST(OpSequence, ARoleThatPublishesHereAndSendsThereIsMissedForBoth) {
  for (const int32_t nth : {0, 1}) {  // of slice 0 of rank 1: to rank 0 of its node, to rank 3 of the other
    const SimReport report =
        hunt(mixed_calls({2, 2}), {.fault = SimFault::drop_signal, .role = "hand", .rank = 1, .nth = nth});
    ASSERT_TRUE(report.has(ViolationKind::wait_without_signal)) << report.text();
    EXPECT_EQ(report.violations.front().rank, Rank{nth == 0 ? 0 : 3}) << report.text();
    EXPECT_NE(report.text().find("slice_handed of chunk 0 of rank 1"), std::string::npos) << report.text();
  }
}

TEST(OpSequence, ARingThatNoRoleFillsIsEndedForTheOp) {
  OpSimulation simulation = small_simulation({1, 1});
  for (int call = 0; call < 2; ++call) {
    simulation.add_call<hand_over::RankModel>({.slices = 0, .slice_bytes = 64}, {{}});
    add_gather(simulation);
  }
  const SimReport clean = run_random_seeds(simulation.program(), {}, 1, 50);
  EXPECT_TRUE(clean.ok()) << clean.text();
  for (SimCall& call : simulation.program().calls) call.remove("end");
  const SimReport report = run_random_seeds(simulation.program(), {}, 1, 50);
  EXPECT_TRUE(report.has(ViolationKind::missing_call_end)) << report.text();
}

TEST(OpSequence, AWordIsNamedAsTheOpOfItsCallNamesIt) {
  const SimReport report =
      hunt(mixed_calls({2, 2}), {.fault = SimFault::drop_signal, .role = "push", .rank = 1, .nth = 1});
  ASSERT_TRUE(report.has(ViolationKind::wait_without_signal)) << report.text();
  EXPECT_NE(report.text().find("shard_arrived of chunk"), std::string::npos) << report.text();
}

// Right as long as an op follows itself.
TEST(OpSequence, AnOpThatTakesTheLastCallForOneOfItsOwnIsFoundInAMixOnly) {
  OpSimulation alone = small_simulation({2, 2});
  for (int call = 0; call < 4; ++call) add_hand_over(alone, true);
  const SimReport clean = run_random_seeds(alone.program(), {}, 1, 100);
  EXPECT_TRUE(clean.ok()) << clean.text();
  const SimReport report = run_random_seeds(mixed_calls({2, 2}, true).program(), {}, 1, 100);
  ASSERT_TRUE(report.has(ViolationKind::wait_without_signal)) << report.text();
  EXPECT_NE(report.text().find("slice_summed"), std::string::npos) << report.text();
}

}  // namespace
}  // namespace tilewire

// What a plan query refuses, asked through the public interface.
#include <gtest/gtest.h>
#include <tilewire/all_gather_gemm.h>
#include <tilewire/gemm_all_reduce.h>
#include <tilewire/gemm_reduce_scatter.h>
#include <tilewire/moe_dispatch_gemm.h>
#include <tilewire/ring_attention.h>

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tilewire {
namespace {

std::string error_of(const AllGatherGemm::Query& query) {
  try {
    plan_all_gather_matmul(query);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return error.what();
  }
  return "";
}

std::string resource_error_of(const AllGatherGemm::Query& query) {
  try {
    plan_all_gather_matmul(query);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resource) << error.what();
    return error.what();
  }
  return "";
}

AllGatherGemm::Query query_of(size_t counts) {
  AllGatherGemm::Query query;
  query.ranks_per_node = {2, 2};
  query.shape.rows.assign(counts, 64);
  query.shape.k = 32;
  query.shape.cols = {48};
  return query;
}

TEST(PlanQuery, OneRowCountARankIsPlanned) {
  EXPECT_EQ(error_of(query_of(4)), "");
  EXPECT_GT(plan_all_gather_matmul(query_of(4)).simulated_s, 0);
}

TEST(PlanQuery, ARowListThatIsTooLongOrTooShortForTheLayoutIsRefusedWithBothNumbers) {
  for (const size_t counts : {3, 5}) {
    const std::string text = error_of(query_of(counts));
    EXPECT_NE(text.find(std::to_string(counts) + " row counts"), std::string::npos) << text;
    EXPECT_NE(text.find("4 ranks"), std::string::npos) << text;
  }
}

TEST(PlanQuery, AReductionIsPlannedWithAllItsRanksAndItsWire) {
  GemmReduceScatter::Query query;
  query.ranks_per_node = {2, 2};
  query.shape = {.rows = {64, 64, 64, 0}, .k = 32, .n = 48, .wire_dtype = {}, .plan_json = {}};
  query.wants_timeline = true;
  const PlanAnswer answer = plan_matmul_reduce_scatter(query);
  EXPECT_GT(answer.simulated_s, 0);
  EXPECT_FALSE(answer.timeline.empty());
  EXPECT_NE(answer.plan_json.find("matmul_reduce_scatter"), std::string::npos) << answer.plan_json;
  query.shape.plan_json = answer.plan_json;
  query.shape.wire_dtype = DataType::fp32;
  EXPECT_GT(plan_matmul_reduce_scatter(query).communication_s, answer.communication_s);
  query.shape.rows.pop_back();
  EXPECT_THROW(plan_matmul_reduce_scatter(query), Error);
}

TEST(PlanQuery, AnAllReduceIsPlannedInOneShotForFewRowsAndInTwoForMany) {
  GemmAllReduce::Query query;
  query.ranks_per_node = {2, 2, 2, 2};
  query.machine = "h200";
  query.shape = {.m = 1, .k = 512, .n = 4096, .plan_json = {}};
  query.wants_timeline = true;
  const PlanAnswer few = plan_matmul_all_reduce(query);
  EXPECT_NE(few.plan_json.find("\"is_one_shot\":true"), std::string::npos) << few.plan_json;
  EXPECT_NE(few.plan_json.find("\"tile_rows\""), std::string::npos) << few.plan_json;
  EXPECT_FALSE(few.timeline.empty());
  query.shape.m = 4096;
  const PlanAnswer many = plan_matmul_all_reduce(query);
  EXPECT_NE(many.plan_json.find("\"is_one_shot\":false"), std::string::npos) << many.plan_json;
  query.shape.plan_json = many.plan_json;
  query.shape.out_dtype = DataType::fp32;
  EXPECT_GT(plan_matmul_all_reduce(query).communication_s, many.communication_s);
}

TEST(PlanQuery, RingAttentionIsPlannedHeadAfterHeadAndForgetsNoPartOfItsShape) {
  RingAttention::Query query;
  query.ranks_per_node = {2, 2};
  query.shape = {.rows = {512, 512, 512, 512}, .q_heads = 8, .kv_heads = 2, .head_dim = 128};
  query.wants_timeline = true;
  const PlanAnswer full = plan_ring_attention(query);
  EXPECT_NE(full.plan_json.find("\"is_step_major\":false"), std::string::npos) << full.plan_json;
  EXPECT_FALSE(full.timeline.empty());
  query.shape.plan_json = full.plan_json;
  query.shape.causal = true;
  query.shape.placement = SequencePlacement::zigzag;
  EXPECT_LT(plan_ring_attention(query).compute_s, 0.8 * full.compute_s);
  query.shape.kv_rows = {256, 256, 256, 256};
  EXPECT_LT(plan_ring_attention(query).communication_s, full.communication_s);
  query.shape.placement = SequencePlacement::given;
  EXPECT_THROW(plan_ring_attention(query), Error);
}

TEST(PlanQuery, MoeDispatchIsPlannedForItsTokensAndForgetsNoPartOfItsShape) {
  MoeDispatchGemm::Query query;
  query.ranks_per_node = {2, 2};
  query.shape = {.experts = {}, .h = 512, .cols = 256, .k = 2, .max_tokens = 4096, .tokens = 256, .plan_json = {}};
  for (int32_t e = 0; e < 16; ++e) query.shape.experts.push_back(e / 4);
  query.shape.max_source_tokens = 512;
  query.wants_timeline = true;
  const PlanAnswer answer = plan_moe_dispatch_matmul(query);
  EXPECT_GT(answer.simulated_s, 0);
  EXPECT_FALSE(answer.timeline.empty());
  EXPECT_NE(answer.plan_json.find("moe_dispatch_matmul"), std::string::npos) << answer.plan_json;
  query.shape.plan_json = answer.plan_json;
  query.shape.tokens = 512;
  EXPECT_GT(plan_moe_dispatch_matmul(query).compute_s, 1.5 * answer.compute_s);
  query.shape.tokens = 256;
  query.shape.cols = 512;
  EXPECT_GT(plan_moe_dispatch_matmul(query).compute_s, 1.5 * answer.compute_s);
  query.shape.cols = 256;
  query.shape.h = 1024;
  EXPECT_GT(plan_moe_dispatch_matmul(query).communication_s, answer.communication_s);
  query.shape.h = 512;
  query.shape.k = 1;
  EXPECT_LT(plan_moe_dispatch_matmul(query).compute_s, 0.8 * answer.compute_s);
  query.shape.experts[3] = 4;
  EXPECT_THROW(plan_moe_dispatch_matmul(query), Error);
}

// Documents are no part of what a plan is chosen for, and of what it is said to take.
TEST(PlanQuery, RingAttentionOfManyDocumentsHasThePlanOfOneAndTakesLess) {
  RingAttention::Query query;
  query.ranks_per_node = {2, 2};
  query.shape = {.rows = {512, 512, 512, 512}, .q_heads = 8, .kv_heads = 2, .head_dim = 128};
  const PlanAnswer one = plan_ring_attention(query);
  query.shape.cu_seqlens = {0, 512, 1024, 1536, 2048};
  const PlanAnswer many = plan_ring_attention(query);
  EXPECT_EQ(many.plan_json, one.plan_json);
  EXPECT_LT(many.simulated_s, 0.8 * one.simulated_s);
  query.shape.cu_seqlens = {0, 512, 100};
  EXPECT_THROW(plan_ring_attention(query), Error);
}

TEST(PlanQuery, ARankOutsideTheLayoutIsRefusedWithBothNumbers) {
  AllGatherGemm::Query query = query_of(4);
  query.rank = 4;
  EXPECT_NE(error_of(query).find("rank = 4, layout = 2+2"), std::string::npos) << error_of(query);
}

TEST(PlanQuery, AMachineNumberThatCannotBeIsRefusedByNameWithValueAndLimit) {
  struct Field {
    const char* name;
    std::optional<double> MachineQuery::*member;
    double least;
  };
  const Field fields[] = {{"worker_tflops", &MachineQuery::worker_tflops, 1e-9},
                          {"copy_gb_per_s", &MachineQuery::copy_gb_per_s, 1e-9},
                          {"node_gb_per_s", &MachineQuery::node_gb_per_s, 1e-9},
                          {"node_latency_us", &MachineQuery::node_latency_us, 0},
                          {"network_gbit_per_s", &MachineQuery::network_gbit_per_s, 1e-9},
                          {"network_latency_us", &MachineQuery::network_latency_us, 0},
                          {"step_us", &MachineQuery::step_us, 0},
                          {"command_us", &MachineQuery::command_us, 0}};
  ASSERT_EQ(machines()[0].numbers.size(), std::size(fields));
  struct Value {
    double value;
    const char* text;
  };
  const Value values[] = {{std::nan(""), "nan"},
                          {std::numeric_limits<double>::infinity(), "inf"},
                          {-std::numeric_limits<double>::infinity(), "-inf"},
                          {-2.5, "-2.5"},
                          {-1e-320, "-1e-320"},
                          {1e300, "1e+300"}};
  for (const Field& field : fields) {
    for (const Value& bad : values) {
      AllGatherGemm::Query query = query_of(4);
      query.*field.member = bad.value;
      const std::string text = error_of(query);
      EXPECT_NE(text.find(std::string(field.name) + " = " + bad.text), std::string::npos) << field.name << ": " << text;
      EXPECT_NE(text.find(field.least == 0 ? "from 0 to 1e+09" : "from 1e-09 to 1e+09"), std::string::npos) << text;
    }
    AllGatherGemm::Query none = query_of(4);
    none.*field.member = 0;
    EXPECT_EQ(error_of(none).empty(), field.least == 0) << field.name;
    for (const double good : {field.least, 1e-9, 1.0, 1e9}) {
      AllGatherGemm::Query query = query_of(4);
      query.*field.member = good;
      EXPECT_EQ(error_of(query), "") << field.name << " = " << good;
      const PlanAnswer answer = plan_all_gather_matmul(query);
      EXPECT_TRUE(std::isfinite(answer.predicted_s) && std::isfinite(answer.simulated_s))
          << field.name << " = " << good;
    }
  }
}

// A number that nothing can set makes untrue plans for every machine but one.
TEST(PlanQuery, EveryNumberOfTheMachineChangesWhatIsPredictedAndIsSaid) {
  AllGatherGemm::Query query = query_of(4);
  const NamedMachine cpu = machines()[0];
  query.workers = 3;
  query.worker_tflops = 8 * cpu.numbers.at("worker_tflops");
  const PlanAnswer given = plan_all_gather_matmul(query);
  EXPECT_NE(given.explanation.find("machine: cpu, with workers, worker_tflops as given"), std::string::npos)
      << given.explanation;
  EXPECT_NE(given.explanation.find("3 workers, each of 0.192 TFLOP/s"), std::string::npos) << given.explanation;
  // Times of what each names, a thousand times as long.
  for (std::optional<double> MachineQuery::*member :
       {&MachineQuery::copy_gb_per_s, &MachineQuery::node_gb_per_s, &MachineQuery::network_gbit_per_s}) {
    AllGatherGemm::Query slow = query_of(4);
    slow.*member = 1e-3;
    EXPECT_GT(plan_all_gather_matmul(slow).simulated_s, 2 * given.simulated_s);
  }
  for (std::optional<double> MachineQuery::*member : {&MachineQuery::node_latency_us, &MachineQuery::network_latency_us,
                                                      &MachineQuery::step_us, &MachineQuery::command_us}) {
    AllGatherGemm::Query slow = query_of(4);
    slow.*member = 1e6;
    EXPECT_GT(plan_all_gather_matmul(slow).predicted_s, 1);
  }
}

TEST(PlanQuery, ANamedMachineGivesTheNumbersThatTheQueryLeavesOut) {
  const std::vector<NamedMachine> known = machines();
  ASSERT_EQ(known[0].name, "cpu");
  const std::map<std::string, double> cpu{
      {"worker_tflops", 0.024},   {"copy_gb_per_s", 6},       {"node_gb_per_s", 5}, {"node_latency_us", 5},
      {"network_gbit_per_s", 32}, {"network_latency_us", 20}, {"step_us", 3},       {"command_us", 1}};
  for (const auto& [name, value] : cpu) EXPECT_NEAR(known[0].numbers.at(name), value, 1e-9 * value) << name;
  for (const NamedMachine& machine : known) {
    AllGatherGemm::Query named = query_of(4);
    named.machine = machine.name;
    AllGatherGemm::Query spelt = named;
    spelt.workers = machine.workers;
    spelt.worker_tflops = machine.numbers.at("worker_tflops");
    spelt.copy_gb_per_s = machine.numbers.at("copy_gb_per_s");
    spelt.node_gb_per_s = machine.numbers.at("node_gb_per_s");
    spelt.node_latency_us = machine.numbers.at("node_latency_us");
    spelt.network_gbit_per_s = machine.numbers.at("network_gbit_per_s");
    spelt.network_latency_us = machine.numbers.at("network_latency_us");
    spelt.step_us = machine.numbers.at("step_us");
    spelt.command_us = machine.numbers.at("command_us");
    const PlanAnswer one = plan_all_gather_matmul(named), other = plan_all_gather_matmul(spelt);
    EXPECT_EQ(one.plan_json, other.plan_json) << machine.name;
    EXPECT_NEAR(one.simulated_s, other.simulated_s, 1e-9 * one.simulated_s) << machine.name;
    EXPECT_NE(one.explanation.find("machine: " + machine.name), std::string::npos) << one.explanation;
  }
  AllGatherGemm::Query unknown = query_of(4);
  unknown.machine = "abacus";
  const std::string text = error_of(unknown);
  for (const NamedMachine& machine : known) EXPECT_NE(text.find(machine.name), std::string::npos) << text;
  EXPECT_NE(text.find("'abacus'"), std::string::npos) << text;
}

TEST(PlanQuery, WorkersAndNodesBelowOneAreRefusedByName) {
  for (const int32_t workers : {0, -1, 5000}) {
    AllGatherGemm::Query query = query_of(4);
    query.workers = workers;
    EXPECT_NE(error_of(query).find("workers = " + std::to_string(workers)), std::string::npos) << error_of(query);
  }
  for (const int32_t ranks : {0, -3}) {
    AllGatherGemm::Query query = query_of(4);
    query.ranks_per_node = {2, ranks, 2};
    EXPECT_NE(error_of(query).find("ranks_per_node[1] = " + std::to_string(ranks)), std::string::npos)
        << error_of(query);
  }
}

TEST(PlanQuery, ALayoutOfNoOrTooManyRanksIsRefusedBeforeItsTablesAreMade) {
  AllGatherGemm::Query query = query_of(4);
  query.ranks_per_node = {};
  EXPECT_NE(error_of(query).find("lists 0 ranks"), std::string::npos) << error_of(query);
  query.ranks_per_node = {std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::max()};
  EXPECT_NE(error_of(query).find("lists 4294967294 ranks"), std::string::npos) << error_of(query);
}

// The smallest cluster that a communicator refuses: a command has no bits for the number of its last rank.
TEST(PlanQuery, RanksThatNoCommunicatorCanHaveAreRefusedAsACommunicatorRefusesThem) {
  AllGatherGemm::Query query = query_of(4097);
  query.ranks_per_node.assign(4097, 1);
  EXPECT_NE(resource_error_of(query).find("world size = 4097"), std::string::npos) << resource_error_of(query);
  EXPECT_NE(resource_error_of(query).find("at most 4096"), std::string::npos);
}

// Above 170 ranks commands have no words for 1024 chunks of each.
TEST(PlanQuery, ManyRanksNeedNoOptionsOfTheirOwn) {
  AllGatherGemm::Query query = query_of(171);
  query.ranks_per_node.assign(57, 3);
  EXPECT_EQ(error_of(query), "");
}

TEST(PlanQuery, TheLimitsAreThoseOfACommunicatorMadeInTheSameEnvironment) {
  ASSERT_EQ(setenv("TILEWIRE_MAX_CHUNKS_PER_SOURCE", "1048576", 1), 0);
  const std::string text = resource_error_of(query_of(4));
  unsetenv("TILEWIRE_MAX_CHUNKS_PER_SOURCE");
  EXPECT_NE(text.find("flag words = 50331656"), std::string::npos) << text;
  EXPECT_EQ(error_of(query_of(4)), "");
}

}  // namespace
}  // namespace tilewire

// The link test over an emulated network: what it says of one that is right, of one that announces messages before they
// are whole, and of one that dies.
#include "executor/link/link_test.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "executor/link/link_probe.h"
#include "testing/op_test_support.h"

namespace tilewire {
namespace {

Options link_options() {
  Options options = test_options();
  options.arena_initial_bytes = LinkProbe::kMostBytes;
  return options;
}

TEST(LinkProbe, EveryMessageOfEveryPairIsWholeInAnyOrderThatANetworkHas) {
  for (const char* personality : {"rc", "relaxed", "srd"}) {
    Options options = link_options();
    options.emulated_personality = personality;
    const auto outcomes = run_thread_cluster({1, 1, 1}, options, [](Session& session) {
      LinkProbe probe(session);
      for (const auto& [from, to] : {std::pair{0, 1}, std::pair{2, 0}}) {
        const LinkChecks checks = probe.ordering(Rank{from}, Rank{to}, 2000, 256);
        EXPECT_EQ(checks.messages, 2048u);
        EXPECT_EQ(checks.wrong, 0u);
      }
    });
    EXPECT_EQ(first_error(outcomes), "") << personality;
  }
}

TEST(LinkProbe, AMessageThatIsAnnouncedBeforeItIsWholeIsCounted) {
  Options options = link_options();
  options.emulated_personality = "srd";
  const auto outcomes = run_faulty_cluster(
      {1, 1}, options,
      [](Session& session) {
        LinkProbe probe(session);
        const LinkChecks there = probe.ordering(Rank{0}, Rank{1}, 17'000, 256);  // in two parts
        EXPECT_EQ(there.wrong, 2u) << "on rank " << session.rank().value;
        EXPECT_EQ(probe.ordering(Rank{1}, Rank{0}, 1000, 256).wrong, 0u);
      },
      [](Rank rank, Options& own) {
        if (rank == Rank{0}) own.fault = "tear:nth=1;tear:nth=16900";
      });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(LinkProbe, NoMeasureIsBetterThanTheNetwork) {
  Options options = link_options();
  options.emulated_latency_us = 300;
  options.emulated_bandwidth_gbps = 0.5;
  const auto outcomes = run_thread_cluster({1, 1}, options, [](Session& session) {
    LinkProbe probe(session);
    const LinkLatency latency = probe.latency(Rank{1}, Rank{0}, 50);
    EXPECT_GE(latency.median_us, 300);
    EXPECT_GE(latency.p99_us, latency.median_us);
    const double gbps = probe.bandwidth_gbps(Rank{0}, Rank{1}, 4096, 0.02);
    EXPECT_GT(gbps, 0);
    EXPECT_LE(gbps, 0.51);
  });
  EXPECT_EQ(first_error(outcomes), "");
}

TEST(LinkProbe, APathThatIsLostIsAnErrorOfBothByName) {
  Options options = link_options();
  options.deadline_s = 20;
  const auto outcomes = run_faulty_cluster(
      {1, 1}, options, [](Session& session) { LinkProbe(session).ordering(Rank{0}, Rank{1}, 1000, 256); },
      [](Rank rank, Options& own) {
        if (rank == Rank{0}) own.fault = "fail:nth=300,status=12";
      });
  expect_everywhere(outcomes, ErrorKind::aborted, {"a request to rank 1 failed", "status = 12"});
}

TEST(LinkTest, TheReportHasEveryPairAndIsTheSameOnAllRanks) {
  ThreadStore store;
  std::array<std::string, 2> reports;
  std::vector<std::thread> ranks;
  for (int32_t r = 0; r < 2; ++r) {
    ranks.emplace_back([r, &store, &reports] {
      Options options = test_options();
      options.rank = r;
      options.world_size = 2;
      options.secret = "no secret from anybody";
      try {
        reports[static_cast<size_t>(r)] =
            run_link_test({.options = options, .store = &store, .threads = {}}, {.seconds = 0.01, .messages = 3000})
                .json;
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << r << ": " << error.what();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  ASSERT_EQ(reports[0], reports[1]);
  const auto report = nlohmann::json::parse(reports[0]);
  EXPECT_EQ(report.at("transport"), "emulated rc");
  EXPECT_EQ(report.at("ranks").size(), 2u);
  std::set<std::pair<int, int>> pairs;
  for (const auto& link : report.at("links")) {
    pairs.emplace(link.at("from"), link.at("to"));
    EXPECT_GT(link.at("latency_us"), 0);
    EXPECT_GT(link.at("gbps_64KiB"), 0);
    EXPECT_GT(link.at("gbps_1MiB"), 0);
    EXPECT_GE(link.at("messages"), 3000);
    EXPECT_EQ(link.at("wrong_messages"), 0);
  }
  EXPECT_EQ(pairs, (std::set<std::pair<int, int>>{{0, 1}, {1, 0}}));
}

}  // namespace
}  // namespace tilewire

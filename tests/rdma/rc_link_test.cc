// The link test over soft-RoCE: two processes with two NICs each, as two hosts would have them.
#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "executor/link/link_test.h"
#include "guest_wire.h"
#include "memory/forked_child.h"
#include "testing/test_support.h"

namespace tilewire {
namespace {

int run_rank(int32_t rank, const std::string& file) {
  Options options = test_options();
  options.transport = "rc";
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous = "127.0.0.1:29513";
  options.secret = "no secret from anybody";
  options.nics = 2;
  options.rc_device = rank == 0 ? "rxe0,rxe2" : "rxe1,rxe3";
  try {
    std::ofstream(file) << run_link_test({.options = options, .threads = {}}, {.seconds = 0.02, .messages = 2000});
    return 0;
  } catch (const Error& error) {
    fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return 1;
  }
}

TEST(RcLinkTest, EveryNicOfEveryPairIsMeasuredAndEveryMessageIsWhole) {
  const std::string folder = ::testing::TempDir();
  {
    ForkedChild first([&] { return run_rank(0, folder + "/link.0.json"); });
    ForkedChild second([&] { return run_rank(1, folder + "/link.1.json"); });
    EXPECT_EQ(first.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
  }
  std::ifstream file(folder + "/link.1.json");
  const nlohmann::json report = nlohmann::json::parse(file);
  EXPECT_EQ(report.at("transport"), "rc");
  std::map<std::string, int> seen;
  for (const auto& link : report.at("links")) {
    ++seen[link.at("from_nics").dump() + " to " + link.at("to_nics").dump()];
    EXPECT_GT(link.at("latency_us"), 0);
    EXPECT_GT(link.at("gbps_1MiB"), 0);
    if (link.contains("messages")) {
      EXPECT_GE(link.at("messages"), 2000);
      EXPECT_EQ(link.at("wrong_messages"), 0);
    }
  }
  EXPECT_EQ(seen, (std::map<std::string, int>{{R"(["rxe0:1","rxe2:1"] to ["rxe1:1","rxe3:1"])", 1},
                                              {R"(["rxe1:1","rxe3:1"] to ["rxe0:1","rxe2:1"])", 1},
                                              {R"(["rxe0:1"] to ["rxe1:1"])", 1},
                                              {R"(["rxe1:1"] to ["rxe0:1"])", 1},
                                              {R"(["rxe2:1"] to ["rxe3:1"])", 1},
                                              {R"(["rxe3:1"] to ["rxe2:1"])", 1}}));
}

}  // namespace
}  // namespace tilewire

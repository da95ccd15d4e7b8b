// For tests of tilewire_link_test: the ranks of a job of it as processes, what they print and how they end.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "memory/forked_child.h"
#include "testing/sanitized.h"
#include "transport/bootstrap/held_port.h"

namespace tilewire {

// A rank of a program with sanitizers takes most of a minute to begin in the guest of tests/rdma.
inline constexpr int kLinkRankSeconds = kIsSanitized ? 400 : 60;

inline std::string content_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

using Variables = std::map<std::string, std::string>;

// One rank. Little memory, so that many fit on one machine.
class LinkRank {
 public:
  LinkRank(const Variables& variables, std::vector<std::string> arguments)
      : out_(new_file()), errors_(new_file()), child_([&] {
          alarm(kLinkRankSeconds);
          for (const auto& [variable, value] : variables) setenv(variable.c_str(), value.c_str(), 1);
          if (freopen(out_.c_str(), "w", stdout) == nullptr || freopen(errors_.c_str(), "w", stderr) == nullptr)
            return 90;
          std::vector<char*> words{const_cast<char*>(TILEWIRE_LINK_TEST)};
          for (std::string& argument : arguments) words.push_back(argument.data());
          words.push_back(nullptr);
          execv(words[0], words.data());
          return 91;
        }) {}

  ~LinkRank() {
    std::remove(out_.c_str());
    std::remove(errors_.c_str());
  }
  LinkRank(const LinkRank&) = delete;
  LinkRank& operator=(const LinkRank&) = delete;

  int wait() { return child_.wait(); }
  void kill_now() const { child_.kill_now(); }
  std::string printed() const { return content_of(out_); }
  std::string said() const { return content_of(errors_); }
  // Until it has said that: whether it has before it was given a long time. It may have ended.
  bool comes_to(const std::string& text) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kLinkRankSeconds * 2 / 3);
    while (said().find(text) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }

 private:
  static std::string new_file() {
    static int count = 0;
    return fmt::format("{}link.{}.{}", ::testing::TempDir(), getpid(), ++count);
  }
  std::string out_;
  std::string errors_;
  ForkedChild child_;
};

// A place to meet, and what all ranks are given.
class LinkJob {
 public:
  explicit LinkJob(Variables variables, int32_t ranks = 2) : variables_(std::move(variables)) {
    variables_["TILEWIRE_WORLD_SIZE"] = std::to_string(ranks);
    variables_["TILEWIRE_RENDEZVOUS"] = fmt::format("127.0.0.1:{}", port_.number());
    variables_["TILEWIRE_SECRET"] = "no secret from anybody";
    variables_["TILEWIRE_LOG_LEVEL"] = "info";
    variables_["TILEWIRE_DEADLINE_S"] = variables_["TILEWIRE_CONNECT_DEADLINE_S"] =
        std::to_string(kLinkRankSeconds * 2 / 3);
  }
  void set(const std::string& name, const std::string& value) { variables_[name] = value; }
  LinkRank start(int32_t rank, std::vector<std::string> arguments, Variables own = {}) const {
    own.insert(variables_.begin(), variables_.end());
    own["TILEWIRE_RANK"] = std::to_string(rank);
    return {own, std::move(arguments)};
  }
  const HeldPort& port() const { return port_; }

 private:
  HeldPort port_;
  Variables variables_;
};

// Pairs of NICs that a report has measured, and that each is measured in full.
inline std::map<std::string, int> measured_in(const nlohmann::json& report, uint64_t messages) {
  std::map<std::string, int> seen;
  for (const auto& link : report.at("links")) {
    ++seen[link.at("from_nics").dump() + " to " + link.at("to_nics").dump()];
    EXPECT_GT(link.at("latency_us"), 0);
    EXPECT_GE(link.at("latency_p99_us"), link.at("latency_us"));
    EXPECT_GT(link.at("gbps_64KiB"), 0);
    EXPECT_GT(link.at("gbps_1MiB"), 0);
    if (link.at("from_nics").size() == 1) continue;
    EXPECT_GE(link.at("messages"), messages);
    EXPECT_EQ(link.at("wrong_messages"), 0);
  }
  return seen;
}

inline void expect_says(const LinkRank& rank, std::initializer_list<const char*> texts) {
  const std::string said = rank.said();
  for (const char* text : texts) EXPECT_NE(said.find(text), std::string::npos) << text << " is not in:\n" << said;
}

// Rank 1 is killed while messages are checked that would take for ever: rank 0 names it.
inline void expect_that_a_killed_rank_is_named(const LinkJob& job, Variables (*own_of)(int32_t rank)) {
  const std::vector<std::string> for_ever{"--seconds", "0.01", "--messages", "1000000000000"};
  LinkRank first = job.start(0, for_ever, own_of(0)), second = job.start(1, for_ever, own_of(1));
  EXPECT_TRUE(first.comes_to("link test: rank 0 to rank 1")) << first.said();
  second.kill_now();
  EXPECT_EQ(second.wait(), -SIGKILL);
  EXPECT_EQ(first.wait(), 2);
  expect_says(first, {"tilewire_link_test: ", "rank 1"});
  EXPECT_EQ(first.printed(), "");
}

}  // namespace tilewire

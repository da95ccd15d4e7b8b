#include "base/log.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <cctype>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tilewire {
namespace {

class Log : public testing::Test {
 protected:
  Log() {
    previous_ = set_log_sink([this](LogLevel, std::string_view line) { lines_.emplace_back(line); });
    set_log_level(LogLevel::warn);
    set_log_rank(Rank(-1));
  }
  ~Log() override {
    set_log_sink(previous_);
    set_log_level(LogLevel::warn);
    set_log_rank(Rank(-1));
    set_thread_log_rank(std::nullopt);
  }

  LogSink previous_;
  std::vector<std::string> lines_;
};

// What follows the time of a line, or a complaint when it does not begin with one as in 12:03:04.567.
std::string after_time(const std::string& line) {
  const std::string pattern = "00:00:00.000";
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool matches = i < line.size() && (pattern[i] == '0' ? std::isdigit(line[i]) != 0 : line[i] == pattern[i]);
    if (!matches) return "no time at the beginning of: " + line;
  }
  return line.substr(pattern.size());
}

TEST_F(Log, ALineCarriesTimeLevelRankAndText) {
  log_warn("{} of {}", 1, 4);
  set_log_rank(Rank(3));
  log_error("gone");
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_EQ(after_time(lines_[0]), " tilewire warn: 1 of 4");
  EXPECT_EQ(after_time(lines_[1]), " tilewire error rank 3: gone");
}

TEST_F(Log, LessSevereLinesAreDropped) {
  log_info("not seen");
  log_debug("not seen");
  EXPECT_TRUE(lines_.empty());
  set_log_level(LogLevel::debug);
  log_debug("seen");
  EXPECT_EQ(lines_.size(), 1U);
  set_log_level(LogLevel::error);
  log_warn("not seen");
  EXPECT_EQ(lines_.size(), 1U);
}

TEST_F(Log, AThreadsOwnRankStandsBeforeTheProcessRank) {
  set_log_rank(Rank(0));
  std::thread([] {
    set_thread_log_rank(Rank(5));
    log_warn("from the thread");
  }).join();
  log_warn("from the process");
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_NE(lines_[0].find("rank 5:"), std::string::npos) << lines_[0];
  EXPECT_NE(lines_[1].find("rank 0:"), std::string::npos) << lines_[1];
}

TEST_F(Log, AFallbackIsToldOnceAKey) {
  for (int i = 0; i < 3; ++i) log_once("log_test.fallback", "fell back, try {}", i);
  log_once("log_test.other", "other");
  ASSERT_EQ(lines_.size(), 2U);
  EXPECT_NE(lines_[0].find("try 0"), std::string::npos);
}

TEST_F(Log, ASilencedFallbackIsStillToldLater) {
  set_log_level(LogLevel::error);
  log_once("log_test.silenced", "first");
  set_log_level(LogLevel::warn);
  log_once("log_test.silenced", "second");
  EXPECT_EQ(lines_.size(), 1U);
}

TEST_F(Log, LinesOfManyThreadsAllArriveWhole) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log_warn("thread {} line {} end", t, i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), 400U);
  for (const std::string& line : lines_) EXPECT_TRUE(line.ends_with(" end")) << line;
}

TEST_F(Log, AThrowingSinkDoesNotReachTheCaller) {
  set_log_sink([](LogLevel, std::string_view) { throw std::runtime_error("disk full"); });
  EXPECT_NO_THROW(log_warn("lost"));
}

TEST_F(Log, AnEmptySinkMeansStderr) {
  set_log_sink(nullptr);
  testing::internal::CaptureStderr();
  log_warn("to stderr");
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.ends_with(": to stderr\n")) << text;
}

TEST(LogLevel, ParsesItsFourNamesOnly) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::debug);
  EXPECT_THROW(parse_log_level("loud"), Error);
}

}  // namespace
}  // namespace tilewire

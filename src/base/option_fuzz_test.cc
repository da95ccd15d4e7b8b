// Property tests: whatever stands in the environment, reading it either works or throws tilewire::Error.
#include "base/host_list.h"
#include "base/launch_environment.h"
#include "base/number_text.h"
#include "base/option_table.h"
#include "base/options.h"

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <random>

namespace tilewire {
namespace {

class RandomText {
 public:
  explicit RandomText(uint64_t seed) : engine_(seed) {}

  int64_t below(int64_t n) { return std::uniform_int_distribution<int64_t>(0, n - 1)(engine_); }

  // Mostly characters that numbers, lists and units are made of, some of any value.
  std::string text() {
    static constexpr std::string_view kLikely = "0123456789-,.eE+xKMGTiB[]()x|= autorcsd";
    std::string text;
    for (int64_t i = below(20); i > 0; --i) {
      text += below(8) == 0 ? static_cast<char>(below(256))
                            : kLikely[static_cast<size_t>(below(static_cast<int64_t>(kLikely.size())))];
    }
    return text;
  }

  // A known variable, sometimes with one letter changed.
  std::string variable() {
    const auto& table = option_table();
    std::string name = table[static_cast<size_t>(below(static_cast<int64_t>(table.size())))].variable;
    if (below(10) == 0) name[static_cast<size_t>(below(static_cast<int64_t>(name.size())))] = 'Q';
    return name;
  }

 private:
  std::mt19937_64 engine_;
};

// True when `call` returned, false when it threw Error; anything else fails the test.
template <class Call>
bool parses(Call call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_argument) << error.what();
    return false;
  }
}

TEST(OptionFuzz, AnyEnvironmentParsesOrIsRefused) {
  RandomText random(1);
  int parsed = 0;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    const Environment environment{{random.variable(), random.text()}, {random.text(), random.text()}};
    ++(parses([&] { Options::parse(environment).validate(); }) ? parsed : refused);
  }
  EXPECT_GT(parsed, 100);
  EXPECT_GT(refused, 100);
}

TEST(OptionFuzz, WhatParsesIsReadBackTheSameFromItsOwnText) {
  RandomText random(2);
  int round_trips = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto& table = option_table();
    const OptionInfo& option = table[static_cast<size_t>(random.below(static_cast<int64_t>(table.size())))];
    Options options;
    const std::string value = random.text();
    if (!parses([&] { assign_option(option, value, options); })) continue;
    Options again;
    const std::string text = option_text(option, options);
    assign_option(option, text, again);
    EXPECT_EQ(option_text(option, again), text) << option.name << " from '" << value << "'";
    ++round_trips;
  }
  EXPECT_GT(round_trips, 100);
}

TEST(OptionFuzz, BytesTextAndParseAreInverse) {
  RandomText random(3);
  for (int i = 0; i < 5000; ++i) {
    const int64_t value = random.below(INT64_MAX) >> random.below(63) << random.below(20);
    if (value < 0) continue;
    EXPECT_EQ(parse_bytes(bytes_text(value)), value) << value;
  }
  EXPECT_EQ(bytes_text(0), "0");
}

TEST(NumberText, TimesAndSizesHaveTheUnitThatFits) {
  for (const auto& [seconds, text] : std::vector<std::pair<double, std::string>>{{0, "0 ns"},
                                                                                 {3.2e-8, "32 ns"},
                                                                                 {1.2e-4, "120 µs"},
                                                                                 {0.1532391, "153.2 ms"},
                                                                                 {0.99999, "1 s"},
                                                                                 {75, "75 s"},
                                                                                 {123456, "1.235e+05 s"},
                                                                                 {-0.002, "-2 ms"}}) {
    EXPECT_EQ(duration_text(seconds), text);
  }
  EXPECT_EQ(rounded_bytes_text(1023), "1023 B");
  EXPECT_EQ(rounded_bytes_text(4198400), "4.004 MiB");
  EXPECT_EQ(rounded_bytes_text(INT64_C(3) << 40), "3 TiB");
}

TEST(OptionFuzz, AnyLauncherVariablesParseOrAreRefused) {
  RandomText random(4);
  const std::vector<std::string> names{"RANK",
                                       "WORLD_SIZE",
                                       "LOCAL_RANK",
                                       "LOCAL_WORLD_SIZE",
                                       "MASTER_ADDR",
                                       "MASTER_PORT",
                                       "OMPI_COMM_WORLD_RANK",
                                       "OMPI_COMM_WORLD_SIZE",
                                       "PMI_RANK",
                                       "PMI_SIZE",
                                       "SLURM_PROCID",
                                       "SLURM_NTASKS",
                                       "SLURM_LOCALID",
                                       "SLURM_NODEID",
                                       "SLURM_JOB_ID",
                                       "SLURM_STEP_NODELIST",
                                       "SLURM_STEP_TASKS_PER_NODE"};
  for (int i = 0; i < 3000; ++i) {
    Environment environment;
    for (const std::string& name : names) {
      const int64_t choice = random.below(4);
      if (choice == 1) environment[name] = random.text();
      if (choice >= 2) environment[name] = std::to_string(random.below(4));
    }
    parses([&] {
      const LaunchEnvironment launch = read_launch_environment(environment, [](std::string_view) { return "1-1"; });
      EXPECT_GE(launch.rank, 0);
      EXPECT_LT(launch.rank, launch.world_size);
    });
  }
}

TEST(OptionFuzz, AnyHostListExpandsOrIsRefused) {
  RandomText random(5);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random.text();
    parses([&] { EXPECT_LE(expand_host_list(text).size(), 65536U); });
    parses([&] { EXPECT_LE(expand_tasks_per_node(text).size(), 65536U); });
  }
}

}  // namespace
}  // namespace tilewire

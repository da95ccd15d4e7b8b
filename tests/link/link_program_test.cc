// tilewire_link_test as two hosts have it, over the fake EFA library: its report, and each wrong use and each piece of bad
// luck as an error that says what to do, on both.
#include "link/link_program.h"

#include <filesystem>

#include "fake_verbs/control.h"

namespace tilewire {
namespace {

Variables fake_network() {
  return {{"TILEWIRE_TRANSPORT", "srd"},
          {"TILEWIRE_VERBS_LIBRARY", FakeVerbs::library()},
          {"TILEWIRE_EFA_LIBRARY", FakeVerbs::library()}};
}

std::string report_file() { return fmt::format("{}link.{}.json", ::testing::TempDir(), getpid()); }

const std::vector<std::string> kShort{"--seconds", "0.01", "--messages", "2000"};

std::vector<std::string> with(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(LinkProgram, TheReportSaysWhatWasMeasuredOverWhich) {
  LinkJob job(fake_network());
  job.set("TILEWIRE_NICS", "2");
  const std::vector<std::string> arguments = with(kShort, {"--report", report_file()});
  LinkRank first = job.start(0, arguments), second = job.start(1, arguments);
  EXPECT_EQ(first.wait(), 0) << first.said();
  EXPECT_EQ(second.wait(), 0) << second.said();
  EXPECT_EQ(first.printed() + second.printed(), "");
  const nlohmann::json report = nlohmann::json::parse(content_of(report_file()));
  std::filesystem::remove(report_file());
  EXPECT_EQ(report.at("transport"), "srd");
  EXPECT_EQ(report.at("memory"), "host");
  EXPECT_EQ(report.at("messages"), 2000);
  EXPECT_EQ(report.at("begun").get<std::string>().size(), std::string("2026-01-01T00:00:00Z").size());
  const std::string both = R"(["efa0:1","efa1:1"])";
  EXPECT_EQ(measured_in(report, 2000),
            (std::map<std::string, int>{
                {both + " to " + both, 2}, {R"(["efa0:1"] to ["efa0:1"])", 2}, {R"(["efa1:1"] to ["efa1:1"])", 2}}));
  ASSERT_EQ(report.at("ranks").size(), 2u);
  for (const auto& rank : report.at("ranks")) {
    EXPECT_NE(rank.at("kernel").get<std::string>().find("Linux"), std::string::npos);
    EXPECT_EQ(rank.at("options").at("nics"), "2");
    EXPECT_FALSE(rank.at("options").contains("secret"));
    const auto& nic = rank.at("nics").at(1);
    EXPECT_EQ(nic.at("name"), "efa1:1");
    EXPECT_EQ(nic.at("library"), std::filesystem::canonical(FakeVerbs::library()).string());
    EXPECT_EQ(nic.at("libefa"), nic.at("library"));
    EXPECT_EQ(nic.at("firmware"), "1.2.3 of a fake");
    EXPECT_EQ(nic.at("network"), "EFA");
    EXPECT_NE(nic.at("address").get<std::string>().find("GID fe80::"), std::string::npos);
    EXPECT_NE(nic.at("mtu").get<std::string>().find("bytes"), std::string::npos);
    EXPECT_NE(nic.at("limits").get<std::string>().find("256 QPs of"), std::string::npos);
    EXPECT_NE(nic.at("efa").get<std::string>().find("4096 send and 32768 receive entries"), std::string::npos);
  }
}

TEST(LinkProgram, AMessageThatIsNotWholeEndsIt) {
  LinkJob job(fake_network());
  job.set("TILEWIRE_NICS", "1");
  // Far more requests than the measures before it send in a hundredth of a second, and fewer than there are.
  LinkRank first = job.start(0, {"--seconds", "0.01", "--messages", "10000"}, {{"TILEWIRE_FAULT", "tear:nth=6000"}});
  LinkRank second = job.start(1, {"--seconds", "0.01", "--messages", "10000"});
  EXPECT_EQ(first.wait(), 1) << first.said();
  EXPECT_EQ(second.wait(), 1) << second.said();
  expect_says(first, {"1 messages were not whole"});
  EXPECT_NE(first.printed().find("\"wrong_messages\": 1"), std::string::npos);
  EXPECT_EQ(second.printed(), "");
}

TEST(LinkProgram, AWrongOptionIsNamedBeforeAnybodyIsWaitedFor) {
  const LinkJob job(fake_network());
  struct Case {
    std::vector<std::string> arguments;
    const char* text;
  };
  const std::vector<Case> cases{{{"--seconds", "nan"}, "seconds = nan"},
                                {{"--seconds", "inf"}, "seconds = inf"},
                                {{"--seconds", "-1"}, "seconds = -1"},
                                {{"--seconds", "0"}, "seconds = 0"},
                                {{"--seconds", "100000"}, "at most half of deadline_s: "},
                                {{"--seconds", "1e999"}, "--seconds cannot be 1e999"},
                                {{"--seconds", "1s"}, "--seconds cannot be 1s"},
                                {{"--seconds", ""}, "--seconds cannot be"},
                                {{"--messages", "-1"}, "--messages cannot be -1"},
                                {{"--messages", "0"}, "messages = 0"},
                                {{"--messages", "1.5"}, "--messages cannot be 1.5"},
                                {{"--messages", "1099511627777"}, "1 to 1099511627776"},
                                {{"--messages", "18446744073709551616"}, "--messages cannot be 18446744073709551616"},
                                {{"--report", ""}, "--report cannot be"},
                                {{"--report"}, "a value is missing behind --report"},
                                {{"--second", "1"}, "unknown --second"},
                                {{"--report", "/no/such/folder/net.json"}, "net.json: No such file or directory"},
                                {{"--report", "/"}, "/: Is a directory"}};
  for (const Case& one : cases) {
    LinkRank rank = job.start(0, one.arguments);
    EXPECT_EQ(rank.wait(), 2) << one.text;
    expect_says(rank, {one.text});
    EXPECT_EQ(rank.printed(), "");
  }
}

TEST(LinkProgram, AJobOfOneRankHasNoLink) {
  LinkRank rank = LinkJob(fake_network(), 1).start(0, {});
  EXPECT_EQ(rank.wait(), 2);
  expect_says(rank, {"a single rank has no link", "2 ranks or more"});
}

TEST(LinkProgram, WhatOneRankIsGivenWrongIsToldToTheOther) {
  const LinkJob job(fake_network());
  LinkRank first = job.start(0, kShort), second = job.start(1, {"--seconds", "nan"});
  EXPECT_EQ(second.wait(), 2);
  EXPECT_EQ(first.wait(), 2);
  expect_says(first, {"rank 1", "seconds = nan"});
}

TEST(LinkProgram, RanksThatMeasureDifferentlyAreBothToldWhat) {
  const LinkJob job(fake_network());
  LinkRank first = job.start(0, kShort), second = job.start(1, {"--seconds", "0.01", "--messages", "3000"});
  for (LinkRank* rank : {&first, &second}) {
    EXPECT_EQ(rank->wait(), 2);
    expect_says(*rank, {"ranks 0 and 1 have different settings", "\"messages\":2000", "\"messages\":3000"});
  }
}

TEST(LinkProgram, AReportThatFindsNoRoomAtTheEndIsPrinted) {
  const LinkJob job(fake_network());
  const std::vector<std::string> arguments = with(kShort, {"--report", "/dev/full"});
  LinkRank first = job.start(0, arguments), second = job.start(1, arguments);
  EXPECT_EQ(first.wait(), 2);
  EXPECT_EQ(second.wait(), 0) << second.said();
  expect_says(first, {"could not be written: /dev/full: No space left on device"});
  EXPECT_EQ(measured_in(nlohmann::json::parse(first.printed()), 2000).size(), 2u);
}

TEST(LinkProgram, APortThatIsTakenIsSaid) {
  const LinkJob job(fake_network());
  job.port().listen();
  LinkRank rank = job.start(0, kShort);
  EXPECT_EQ(rank.wait(), 2);
  expect_says(rank, {"of this host is in use", "give every job its own port"});
}

TEST(LinkProgram, APeerThatNeverComesIsNamed) {
  LinkJob job(fake_network());
  job.set("TILEWIRE_CONNECT_DEADLINE_S", "0.2");
  LinkRank rank = job.start(0, kShort);
  EXPECT_EQ(rank.wait(), 2);
  expect_says(rank, {"rank 1 did not come to the rendezvous"});
}

TEST(LinkProgram, ARankThatIsKilledMeanwhileIsNamed) {
  expect_that_a_killed_rank_is_named(LinkJob(fake_network()), [](int32_t) { return Variables{}; });
}

}  // namespace
}  // namespace tilewire

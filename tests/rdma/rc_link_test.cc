// tilewire_link_test over soft-RoCE: two processes with two NICs each, as two hosts would have them.
#include "guest_wire.h"
#include "link/link_program.h"

namespace tilewire {
namespace {

LinkJob job_over_rc(const std::string& nics) {
  LinkJob job(Variables{{"TILEWIRE_TRANSPORT", "rc"}});
  job.set("TILEWIRE_NICS", nics);
  return job;
}

Variables devices_of(int32_t rank) { return {{"TILEWIRE_RC_DEVICE", rank == 0 ? "rxe0,rxe2" : "rxe1,rxe3"}}; }

TEST(RcLinkTest, EveryNicOfEveryPairIsMeasuredAndEveryMessageIsWhole) {
  const LinkJob job = job_over_rc("2");
  const std::vector<std::string> arguments{"--seconds", "0.02", "--messages", "2000"};
  LinkRank first = job.start(0, arguments, devices_of(0)), second = job.start(1, arguments, devices_of(1));
  EXPECT_EQ(first.wait(), 0) << first.said();
  EXPECT_EQ(second.wait(), 0) << second.said();
  const nlohmann::json report = nlohmann::json::parse(first.printed());
  EXPECT_EQ(report.at("transport"), "rc");
  EXPECT_EQ(measured_in(report, 2000), (std::map<std::string, int>{{R"(["rxe0:1","rxe2:1"] to ["rxe1:1","rxe3:1"])", 1},
                                                                   {R"(["rxe1:1","rxe3:1"] to ["rxe0:1","rxe2:1"])", 1},
                                                                   {R"(["rxe0:1"] to ["rxe1:1"])", 1},
                                                                   {R"(["rxe1:1"] to ["rxe0:1"])", 1},
                                                                   {R"(["rxe2:1"] to ["rxe3:1"])", 1},
                                                                   {R"(["rxe3:1"] to ["rxe2:1"])", 1}}));
  const auto& nic = report.at("ranks").at(1).at("nics").at(0);
  EXPECT_NE(nic.at("library").get<std::string>().find("/libibverbs.so.1."), std::string::npos) << nic;
  EXPECT_EQ(nic.at("network"), "RoCE");
  EXPECT_EQ(nic.at("address"), "GID 1 (::ffff:10.77.0.2, RoCE v2)");
  EXPECT_EQ(nic.at("mtu"), "4096 of 4096 bytes");
}

TEST(RcLinkTest, ARankThatIsKilledMeanwhileIsNamed) {
  LinkJob job = job_over_rc("1");
  expect_that_a_killed_rank_is_named(job, devices_of);
}

}  // namespace
}  // namespace tilewire

// The link test between ranks of several nodes: kernels send, and read what arrives.
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "device/link/link_series.h"
#include "executor/link/link_probe.h"
#include "executor/link/link_test.h"
#include "rank_program.h"
#include "rank_tests.h"

namespace tilewire {
namespace {

SessionSetup setup_of(const Options& options) {
  return {.options = options, .threads = {}, .roll_call = hold_roll_call, .gpu_clock = make_global_clock};
}

std::unique_ptr<Session> join(Options options) {
  options.arena_initial_bytes = LinkProbe::kMostBytes;
  return Session::create(setup_of(options));
}

}  // namespace

void test_links(const Options& options) {
  set_log_level(parse_log_level(options.log_level));
  const uint64_t messages = options.world_size == 2 ? 1'000'000 : 50'000;  // of each of many pairs
  const LinkTestResult result =
      run_link_test(setup_of(options), {.seconds = 0.3, .messages = messages}, make_link_kernel);
  const auto report = nlohmann::json::parse(result.json);
  expect(report.at("memory") == "GPU", "the report says whose memory it was");
  for (const auto& link : report.at("links")) {
    if (options.rank == 0) std::printf("  %s\n", link.dump().c_str());
    expect(link.at("messages") >= messages && link.at("wrong_messages") == 0, "all messages are whole");
    expect(link.at("latency_us") > 0 && link.at("gbps_1MiB") > 0, "links are measured");
  }
  expect(result.wrong == 0 && !report.at("links").empty(), "no message is wrong");
}

void test_torn_links(const Options& options) {
  Options own = options;
  if (own.rank == 0) own.fault = "tear:nth=1;tear:nth=300;tear:nth=16900";
  const std::unique_ptr<Session> session = join(own);
  LinkProbe probe(*session, make_link_kernel);
  const LinkChecks torn = probe.ordering(Rank{0}, Rank{1}, 17'000, 4096);
  expect(torn.wrong == 3, "kernels find each message that is not whole: " + std::to_string(torn.wrong));
  expect(probe.ordering(Rank{1}, Rank{0}, 1000, 4096).wrong == 0, "and no other");
  session->close();
}

void test_lost_links(const Options& options) {
  Options own = options;
  own.deadline_s = 2;
  if (own.rank == 0) own.fault = "drop:peer=1,after=300";
  const std::unique_ptr<Session> session = join(own);
  const auto begin = Clock::now();
  const auto error = error_of([&] { LinkProbe(*session, make_link_kernel).ordering(Rank{0}, Rank{1}, 17'000, 4096); });
  std::printf("  rank %lld after %.1f ms: %s\n", static_cast<long long>(own.rank), ms_since(begin),
              error ? error->what() : "no error");
  expect(error && error->kind() == ErrorKind::deadline &&
             std::string(error->what()).find("[link test, ") != std::string::npos,
         "a message that never comes ends it by name");
  expect(ms_since(begin) < 10'000, "at its deadline");
  session->close();
}

}  // namespace tilewire

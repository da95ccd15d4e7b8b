#include "executor/link/link_test.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tilewire/error.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/option_table.h"
#include "executor/link/link_facts.h"
#include "executor/link/link_probe.h"

namespace tilewire {
namespace {

using nlohmann::ordered_json;

constexpr double kRoundsASecond = 1000;  // of a measure
constexpr int64_t kSmallBytes = int64_t{64} << 10, kLargeBytes = int64_t{1} << 20, kMessageBytes = 4096;
constexpr int64_t kHalfBytes = LinkProbe::kMostBytes;

// Every rank a node of its own, and memory for what is sent.
Options options_of_test(Options options) {
  options.layout = fmt::format("{}", fmt::join(std::vector<int>(static_cast<size_t>(options.world_size), 1), ","));
  options.arena_initial_bytes = kHalfBytes;
  options.arrivals = "proxy";
  options.max_chunks_per_source = std::max<int64_t>(options.max_chunks_per_source, LinkProbe::kChunks);
  return options;
}

// What those NICs of either end carry at most; 0: unknown.
double line_gbps(const ordered_json& from, const ordered_json& to) {
  double a = 0, b = 0;
  for (const ordered_json& nic : from) a += nic.at("gbps").get<double>();
  for (const ordered_json& nic : to) b += nic.at("gbps").get<double>();
  return std::min(a, b);
}

ordered_json names_of(const ordered_json& nics) {
  ordered_json names = ordered_json::array();
  for (const ordered_json& nic : nics) names.push_back(nic.at("name"));
  return names;
}

class PairMeasures {
 public:
  PairMeasures(const LinkTestSettings& settings, const LinkKernelMaker& make_kernel, LinkTestResult& result)
      : settings_(settings), make_kernel_(make_kernel), result_(result) {}

  // Of every ordered pair of ranks.
  void measure(Session& session, bool checks) {
    const std::vector<ordered_json> nics = gather_json(session, "nics", nics_of(session));
    LinkProbe probe(session, make_kernel_);
    for (int32_t a = 0; a < session.topology().ranks; ++a) {
      for (int32_t b = 0; b < session.topology().ranks; ++b) {
        if (a == b) continue;
        const ordered_json &from = nics[static_cast<size_t>(a)], &to = nics[static_cast<size_t>(b)];
        ordered_json link{{"from", a}, {"to", b}, {"from_nics", names_of(from)}, {"to_nics", names_of(to)}};
        log_info("link test: rank {} to rank {}, {} to {}", a, b, link["from_nics"].dump(), link["to_nics"].dump());
        measure_pair(probe, Rank{a}, Rank{b}, link);
        link["line_gbps"] = line_gbps(from, to);
        if (checks) check_pair(probe, Rank{a}, Rank{b}, link);
        links_.push_back(std::move(link));
      }
    }
    session.control().barrier("measured", session.deadline());
  }
  ordered_json take() { return std::move(links_); }

 private:
  void measure_pair(LinkProbe& probe, Rank a, Rank b, ordered_json& link) const {
    const auto rounds = static_cast<int>(std::clamp(settings_.seconds * kRoundsASecond, 50.0, 10'000.0));
    const LinkLatency latency = probe.latency(a, b, rounds);
    link["latency_us"] = latency.median_us;
    link["latency_p99_us"] = latency.p99_us;
    link["gbps_64KiB"] = probe.bandwidth_gbps(a, b, kSmallBytes, settings_.seconds);
    link["gbps_1MiB"] = probe.bandwidth_gbps(a, b, kLargeBytes, settings_.seconds);
  }
  void check_pair(LinkProbe& probe, Rank a, Rank b, ordered_json& link) {
    const LinkChecks found = probe.ordering(a, b, settings_.messages, kMessageBytes);
    link["messages"] = found.messages;
    link["wrong_messages"] = found.wrong;
    result_.wrong += found.wrong;
  }

  const LinkTestSettings& settings_;
  const LinkKernelMaker& make_kernel_;
  LinkTestResult& result_;
  ordered_json links_ = ordered_json::array();
};

// Else ranks would wait for messages that others never send.
void check_same_settings(Session& session, const ordered_json& own) {
  const std::vector<ordered_json> all = gather_json(session, "settings", own);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    throw Error(ErrorKind::mismatch, {.what = fmt::format("ranks 0 and {} have different settings of the link test", r),
                                      .values = fmt::format("{} and {}", all[0].dump(), all[r].dump()),
                                      .advice = "give all ranks the same"});
  }
}

// The option that names devices of that transport, or null.
const OptionInfo* device_option(const std::string& transport) {
  for (const OptionInfo& option : option_table()) {
    if (option.name == transport + "_device") return &option;
  }
  return nullptr;
}

}  // namespace

void LinkTestSettings::validate(const Options& options) const {
  const auto refuse = [](const char* what, std::string values, std::string limit) {
    throw Error(ErrorKind::invalid_argument,
                {.what = what, .where = "link test", .values = std::move(values), .limit = std::move(limit)});
  };
  // A rank that only looks on waits for all of a measure; the last try of one takes a third longer than was asked for.
  const double most = options.deadline_s / 2;
  if (!(seconds > 0 && seconds <= most)) {
    refuse("a measure cannot take that long", fmt::format("seconds = {}", seconds),
           fmt::format("more than 0, at most half of deadline_s: {}", most));
  }
  if (messages < 1 || messages > kMostMessages) {
    refuse("so many messages cannot be checked", fmt::format("messages = {}", messages),
           fmt::format("1 to {}", kMostMessages));
  }
  if (options.world_size < 2) {
    refuse("a single rank has no link", fmt::format("world_size = {}", options.world_size), "2 ranks or more");
  }
}

LinkTestResult run_link_test(const SessionSetup& setup, const LinkTestSettings& settings,
                             const LinkKernelMaker& make_kernel) {
  settings.validate(setup.options);
  SessionSetup own = setup;
  own.options = options_of_test(setup.options);
  LinkTestResult result;
  PairMeasures measures(settings, make_kernel, result);
  const ordered_json wishes{{"seconds", settings.seconds}, {"messages", settings.messages}};
  ordered_json report{{"tilewire", TILEWIRE_VERSION}, {"message_bytes", kMessageBytes}};
  report.update(wishes);
  {
    const std::unique_ptr<Session> session = Session::create(own);
    check_same_settings(*session, wishes);
    const std::string now = fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)));
    report["begun"] = gather_json(*session, "begun", now)[0];
    report["memory"] = session->gpu() != nullptr ? "GPU" : "host";
    report["transport"] = session->transport_name();
    report["arrivals"] = session->proxy()->arrival().reason;
    report["ranks"] = gather_json(*session, "ranks", facts_of_rank(*session, setup.options));
    measures.measure(*session, true);
    session->close();
  }
  const OptionInfo* option = device_option(report["transport"]);
  const ordered_json nics = report["ranks"][static_cast<size_t>(own.options.rank)]["nics"];
  for (size_t i = 0; option != nullptr && nics.size() > 1 && i < nics.size(); ++i) {  // as many on all ranks
    own.options.nics = 1;
    assign_option(*option, nics[i].at("name").get<std::string>(), own.options);
    const std::unique_ptr<Session> session = Session::create(own);
    measures.measure(*session, false);
    session->close();
  }
  report["links"] = measures.take();
  result.json = report.dump(2);
  return result;
}

}  // namespace tilewire

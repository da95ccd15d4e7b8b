#include "executor/link/link_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/option_table.h"
#include "executor/link/link_probe.h"
#include "transport/bootstrap/byte_codec.h"

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

// NICs of all ranks, by rank.
std::vector<std::vector<NicInfo>> gather_nics(Session& session) {
  ByteWriter writer;
  const std::vector<NicInfo> own = session.transport()->nics();
  writer.u64(own.size());
  for (const NicInfo& nic : own) writer.text(nic.name).u64(static_cast<uint64_t>(nic.gbps * 1000));
  std::vector<std::vector<NicInfo>> all;
  for (const Bytes& bytes : session.control().allgather({.kind = "nics"}, writer.take(), session.deadline())) {
    ByteReader reader(bytes, "nics");
    std::vector<NicInfo>& nics = all.emplace_back();
    for (uint64_t left = reader.u64(); left > 0; --left) {
      NicInfo nic{.name = reader.text()};
      nic.gbps = static_cast<double>(reader.u64()) / 1000;
      nics.push_back(std::move(nic));
    }
  }
  return all;
}

// What that many NICs of either end carry at most; 0: unknown.
double line_gbps(const std::vector<NicInfo>& from, const std::vector<NicInfo>& to) {
  double a = 0, b = 0;
  for (const NicInfo& nic : from) a += nic.gbps;
  for (const NicInfo& nic : to) b += nic.gbps;
  return std::min(a, b);
}

ordered_json names_of(const std::vector<NicInfo>& nics) {
  ordered_json names = ordered_json::array();
  for (const NicInfo& nic : nics) names.push_back(nic.name);
  return names;
}

// Of every ordered pair of ranks.
void measure_pairs(Session& session, const LinkTestSettings& settings, bool checks, ordered_json& links) {
  const std::vector<std::vector<NicInfo>> nics = gather_nics(session);
  LinkProbe probe(session);
  const int32_t ranks = session.topology().ranks;
  const auto rounds = static_cast<int>(std::clamp(settings.seconds * kRoundsASecond, 50.0, 10'000.0));
  for (int32_t a = 0; a < ranks; ++a) {
    for (int32_t b = 0; b < ranks; ++b) {
      if (a == b) continue;
      const auto &from = nics[static_cast<size_t>(a)], &to = nics[static_cast<size_t>(b)];
      ordered_json link{{"from", a}, {"to", b}, {"from_nics", names_of(from)}, {"to_nics", names_of(to)}};
      const LinkLatency latency = probe.latency(Rank{a}, Rank{b}, rounds);
      link["latency_us"] = latency.median_us;
      link["latency_p99_us"] = latency.p99_us;
      link["gbps_64KiB"] = probe.bandwidth_gbps(Rank{a}, Rank{b}, kSmallBytes, settings.seconds);
      link["gbps_1MiB"] = probe.bandwidth_gbps(Rank{a}, Rank{b}, kLargeBytes, settings.seconds);
      link["line_gbps"] = line_gbps(from, to);
      if (checks) {
        const LinkChecks found = probe.ordering(Rank{a}, Rank{b}, settings.messages, kMessageBytes);
        link["messages"] = found.messages;
        link["wrong_messages"] = found.wrong;
      }
      links.push_back(std::move(link));
    }
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

std::string run_link_test(const SessionSetup& setup, const LinkTestSettings& settings) {
  SessionSetup own = setup;
  own.options = options_of_test(setup.options);
  ordered_json report{{"tilewire", TILEWIRE_VERSION}, {"messages_bytes", kMessageBytes}};
  ordered_json links = ordered_json::array();
  std::vector<std::vector<NicInfo>> nics;
  {
    const std::unique_ptr<Session> session = Session::create(own);
    nics = gather_nics(*session);
    report["transport"] = session->transport_name();
    report["arrivals"] = session->proxy()->arrival().reason;
    for (int32_t r = 0; r < session->topology().ranks; ++r) {
      report["hosts"].push_back(session->control().hosts()[static_cast<size_t>(r)].to_text());
    }
    measure_pairs(*session, settings, true, links);
    session->control().barrier("measured", session->deadline());
    session->close();
  }
  const OptionInfo* option = device_option(report["transport"]);
  const size_t count = nics[0].size();  // the same on all ranks
  for (size_t i = 0; option != nullptr && count > 1 && i < count; ++i) {
    own.options.nics = 1;
    assign_option(*option, nics[static_cast<size_t>(own.options.rank)][i].name, own.options);
    const std::unique_ptr<Session> session = Session::create(own);
    measure_pairs(*session, settings, false, links);
    session->control().barrier("measured", session->deadline());
    session->close();
  }
  report["links"] = std::move(links);
  return report.dump(2);
}

}  // namespace tilewire

#include "executor/link/link_facts.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/option_table.h"
#include "memory/nic_access.h"
#include "transport/bootstrap/byte_codec.h"

namespace tilewire {
namespace {

using nlohmann::ordered_json;

// Those that say who a rank is and where ranks meet differ between any two jobs.
constexpr std::array<std::string_view, 5> kOfTheLaunch{"rank", "world_size", "rendezvous", "job", "secret"};

ordered_json changed_options(const Options& given) {
  const Options defaults;
  ordered_json changed = ordered_json::object();
  for (const OptionInfo& option : option_table()) {
    if (std::find(kOfTheLaunch.begin(), kOfTheLaunch.end(), option.name) != kOfTheLaunch.end()) continue;
    const std::string text = option_text(option, given);
    if (text != option_text(option, defaults)) changed[option.name] = text;
  }
  return changed;
}

std::string kernel_text() {
  utsname name{};
  return uname(&name) == 0 ? fmt::format("{} {} {}", name.sysname, name.release, name.machine) : "";
}

}  // namespace

std::vector<ordered_json> gather_json(Session& session, const char* kind, const ordered_json& own) {
  // Texts of a kernel or a device may be in any encoding.
  const std::string text = own.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  std::vector<ordered_json> all;
  for (const Bytes& bytes : session.control().allgather({.kind = kind}, to_bytes(text), session.deadline())) {
    all.push_back(ordered_json::parse(to_text(bytes)));
  }
  return all;
}

ordered_json nics_of(const Session& session) {
  ordered_json nics = ordered_json::array();
  for (const NicInfo& info : session.transport()->nics()) {
    ordered_json nic{{"name", info.name}, {"gbps", info.gbps}};
    for (const auto& [name, value] : info.facts) nic[name] = value;
    nics.push_back(std::move(nic));
  }
  return nics;
}

ordered_json facts_of_rank(Session& session, const Options& given) {
  ordered_json facts{{"host", session.control().hosts()[static_cast<size_t>(session.rank().value)].to_text()},
                     {"kernel", kernel_text()},
                     {"options", changed_options(given)},
                     {"nics", nics_of(session)}};
  const auto access = session.arena().nic_access();
  if (session.gpu() != nullptr && access) {
    facts["gpu"] = {{"pci", session.gpu()->pci_address()}, {"needs_flush", access->needs_flush()}};
  }
  return facts;
}

}  // namespace tilewire

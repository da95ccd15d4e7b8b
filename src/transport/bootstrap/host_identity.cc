#include "transport/bootstrap/host_identity.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace tilewire {
namespace {

std::string read_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string read_link(const char* path) {
  std::array<char, 128> target{};
  const ssize_t size = ::readlink(path, target.data(), target.size());
  return size > 0 ? std::string(target.data(), static_cast<size_t>(size)) : std::string();
}

}  // namespace

bool HostIdentity::is_same_host(const HostIdentity& other) const {
  if (!override_id.empty() || !other.override_id.empty()) return override_id == other.override_id;
  return hostname == other.hostname && boot_id == other.boot_id && network_namespace == other.network_namespace;
}

std::string HostIdentity::to_text() const {
  const std::string& name = override_id.empty() ? hostname : override_id;
  return fmt::format("{} (process {})", name.empty() ? "unnamed host" : name, process_id);
}

HostIdentity this_host(const std::string& override_id) {
  HostIdentity host;
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) host.hostname = name.data();
  host.boot_id = read_line("/proc/sys/kernel/random/boot_id");
  host.network_namespace = read_link("/proc/self/ns/net");
  host.override_id = override_id;
  host.process_id = static_cast<int32_t>(::getpid());
  return host;
}

std::vector<std::vector<Rank>> group_by_host(std::span<const HostIdentity> hosts) {
  std::vector<std::vector<Rank>> groups;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const Rank rank(static_cast<int32_t>(i));
    bool is_placed = false;
    for (auto& group : groups) {
      if (!hosts[static_cast<size_t>(group.front().value)].is_same_host(hosts[i])) continue;
      group.push_back(rank);
      is_placed = true;
      break;
    }
    if (!is_placed) groups.push_back({rank});
  }
  return groups;
}

}  // namespace tilewire

#include "transport/nics/machine_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>

namespace tilewire {
namespace {

constexpr int32_t kBehindOneHostBridge = 1000;
constexpr int32_t kOnOneNumaNode = 2000;
constexpr int32_t kAnywhere = 3000;
constexpr size_t kMostProcessors = 1 << 16;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// "0000:3f:00.0" or the longer form of a domain beyond 16 bits; "pci0000:3a" is a host bridge.
bool is_on_the_bus(const std::string& name) {
  if (name.rfind("pci", 0) == 0) return name.size() > 3;
  const size_t dot = name.rfind('.');
  return std::count(name.begin(), name.end(), ':') == 2 && dot != std::string::npos && dot + 2 == name.size();
}

int32_t read_number(const std::string& path, int32_t otherwise) {
  const std::string line = first_line(path);
  int32_t number = otherwise;
  std::from_chars(line.data(), line.data() + line.size(), number);
  return number;
}

DevicePlace place_at(const std::string& link) {
  DevicePlace place;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(link, error);
  if (error) return place;
  for (const auto& part : real) {
    if (is_on_the_bus(part.string())) place.path.push_back(part.string());
  }
  place.numa = read_number((real / "numa_node").string(), -1);
  return place;
}

}  // namespace

DevicePlace MachineMap::of_rdma_device(const std::string& name) const {
  return place_at(fmt::format("{}/class/infiniband/{}/device", sysfs_, name));
}

DevicePlace MachineMap::of_pci_device(std::string address) const {
  std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
  return place_at(fmt::format("{}/bus/pci/devices/{}", sysfs_, address));
}

std::string MachineMap::rdma_driver(const std::string& name) const {
  std::error_code error;
  const auto link =
      std::filesystem::read_symlink(fmt::format("{}/class/infiniband/{}/device/driver", sysfs_, name), error);
  if (error) return "";
  const std::string driver = link.filename().string();
  const std::string version = first_line(fmt::format("{}/module/{}/version", sysfs_, driver));
  return version.empty() ? driver : driver + ' ' + version;
}

double MachineMap::rdma_port_gbps(const std::string& name, int port) const {
  const std::string line = first_line(fmt::format("{}/class/infiniband/{}/ports/{}/rate", sysfs_, name, port));
  double gbps = 0;  // "400 Gb/sec (4X NDR)"
  std::from_chars(line.data(), line.data() + line.size(), gbps);
  return gbps;
}

std::vector<int> MachineMap::processors_of(int32_t numa) const {
  if (numa < 0) return {};
  return parse_processor_list(first_line(fmt::format("{}/devices/system/node/node{}/cpulist", sysfs_, numa)));
}

int32_t MachineMap::numa_of(const std::vector<int>& processors) const {
  const std::vector<int> nodes = parse_processor_list(first_line(sysfs_ + "/devices/system/node/has_cpu"));
  if (nodes.size() < 2 || processors.empty()) return -1;
  for (const int node : nodes) {
    const std::vector<int> there = processors_of(node);
    const auto is_there = [&](int p) { return std::find(there.begin(), there.end(), p) != there.end(); };
    if (std::all_of(processors.begin(), processors.end(), is_there)) return node;
  }
  return -1;
}

int32_t distance_between(const DevicePlace& a, const DevicePlace& b) {
  const auto end = std::mismatch(a.path.begin(), a.path.end(), b.path.begin(), b.path.end());
  const auto shared = std::distance(a.path.begin(), end.first);
  if (shared >= 2) {
    return static_cast<int32_t>(std::distance(end.first, a.path.end()) + std::distance(end.second, b.path.end()));
  }
  if (shared == 1) return kBehindOneHostBridge;
  return a.numa >= 0 && a.numa == b.numa ? kOnOneNumaNode : kAnywhere;
}

std::vector<int> parse_processor_list(std::string_view text) {
  std::vector<int> processors;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    int first = 0, last = 0;
    const char* const end = part.data() + part.size();
    const auto begin = std::from_chars(part.data(), end, first);
    if (begin.ec != std::errc()) continue;
    last = first;
    if (begin.ptr != end && *begin.ptr == '-') std::from_chars(begin.ptr + 1, end, last);
    for (int p = first; p >= 0 && p <= last && processors.size() < kMostProcessors; ++p) processors.push_back(p);
  }
  return processors;
}

}  // namespace tilewire

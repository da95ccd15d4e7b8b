#include "transport/verbs/port.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "transport/nics/nic_deal.h"
#include "transport/nics/striped_transport.h"
#include "transport/verbs/library.h"

namespace tilewire::verbs {
namespace {

const char* state_text(abi::PortState state) {
  switch (state) {
    case abi::kPortDown: return "down";
    case abi::kPortInit: return "initialising";
    case abi::kPortArmed: return "armed";
    case abi::kPortActive: return "active";
    default: return "in no known state";
  }
}

// Libraries before rdma-core 31 do not tell the type of an entry; the kernel does.
abi::GidType type_from_kernel(const std::string& device, int port, int index) {
  std::ifstream file(fmt::format("/sys/class/infiniband/{}/ports/{}/gid_attrs/types/{}", device, port, index));
  std::string line;
  std::getline(file, line);
  return line.find("v2") != std::string::npos ? abi::kGidRoceV2 : abi::kGidRoceV1;
}

GidRow read_gid(const Verbs& verbs, const Port& port, const std::string& device, int32_t index) {
  GidRow row{.index = index};
  if (verbs.query_gid_entry != nullptr) {
    abi::GidEntry entry{};
    const int error =
        verbs.query_gid_entry(port.context.get(), port.number, static_cast<uint32_t>(index), &entry, 0, sizeof(entry));
    // ENODATA is an empty row.
    row.is_readable = error == 0 || error == ENODATA;
    if (error == 0) row.gid = entry.gid;
    row.type = static_cast<abi::GidType>(entry.gid_type);
  } else {
    row.is_readable = verbs.query_gid(port.context.get(), port.number, index, &row.gid) == 0;
    row.type = type_from_kernel(device, port.number, index);
  }
  return row;
}

void describe(const Verbs& verbs, const PortWish& wish, const std::string& device, Port& port) {
  const int error = verbs.query_port(port.context.get(), port.number, &port.attr);
  if (error != 0) {
    port.problem = fmt::format("the port cannot be asked: {}", errno_text(error));
    return;
  }
  port.gids.reserve(static_cast<size_t>(std::max(0, port.attr.gid_tbl_len)));
  for (int32_t i = 0; i < port.attr.gid_tbl_len; ++i) port.gids.push_back(read_gid(verbs, port, device, i));
  port.problem = wish.judge(port);
  if (port.attr.state != abi::kPortActive) port.problem = fmt::format("the port is {}", state_text(port.attr.state));
}

// The devices of this machine, as long as it lives.
class DeviceList {
 public:
  explicit DeviceList(const Verbs& verbs) : verbs_(verbs), devices_(verbs.get_device_list(&count_)) {
    if (devices_ != nullptr) return;
    throw Error(ErrorKind::unavailable, {.what = "the RDMA devices cannot be listed",
                                         .values = errno_text(errno),
                                         .advice = "load ib_uverbs; in a container give it /dev/infiniband"});
  }
  ~DeviceList() { verbs_.free_device_list(devices_); }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  int size() const { return count_; }
  abi::Device* at(int i) const { return devices_[i]; }

 private:
  const Verbs& verbs_;
  int count_ = 0;
  abi::Device** devices_;
};

Context open_device(const Verbs& verbs, abi::Device* device) { return {verbs, verbs.open_device(device)}; }

std::string_view device_of(const Port& port) { return std::string_view(port.name).substr(0, port.name.find(':')); }

// Of ports that can be used, those that wish.device names, in its order. "" when each name has one, else which has none.
std::string_view find_named(const std::vector<Port>& ports, const PortWish& wish, std::vector<size_t>& good) {
  for (std::string_view left = wish.device; !left.empty();) {
    const std::string_view name = left.substr(0, left.find(','));
    left.remove_prefix(std::min(left.size(), name.size() + 1));
    bool is_there = false;
    for (size_t i = 0; i < ports.size(); ++i) {
      if (!ports[i].problem.empty() || (ports[i].name != name && device_of(ports[i]) != name)) continue;
      is_there = true;
      if (std::find(good.begin(), good.end(), i) == good.end()) good.push_back(i);
    }
    if (!is_there) return name;
  }
  return "";
}

[[noreturn]] void fail_choice(const std::vector<Port>& ports, const PortWish& wish, std::string_view lacking) {
  std::string there;
  for (const Port& port : ports) {
    there += fmt::format("{}{}: {}", there.empty() ? "" : "; ", port.name,
                         port.problem.empty() ? "can be used" : port.problem);
  }
  throw Error(
      ErrorKind::unavailable,
      {.what = wish.device.empty() ? "no port of an RDMA device can be used"
                                   : fmt::format("the RDMA device that was asked for cannot be used: {}", lacking),
       .values = wish.device.empty() ? "" : fmt::format("{} = {}", wish.device_option, wish.device),
       .limit = there.empty() ? "there is no RDMA device" : "there are: " + there,
       .advice = "see `rdma link` and `ibv_devinfo`; in a container give it /dev/infiniband"});
}

[[noreturn]] void fail_count(const std::vector<Port>& ports, const std::vector<size_t>& good, const PortWish& wish) {
  std::string names;
  for (const size_t i : good) names += (names.empty() ? "" : ", ") + ports[i].name;
  throw Error(ErrorKind::invalid_argument, {.what = "a rank cannot have so many NICs",
                                            .values = fmt::format("nics = {}", wish.nics),
                                            .limit = fmt::format("{} ports can be used: {}", good.size(), names),
                                            .advice = "lower nics, or leave it 0"});
}

// Machines have slower ports for storage and for logging in; a chunk in turn on one of them would hold up all others.
void keep_fastest_network(const std::vector<Port>& ports, std::vector<size_t>& good) {
  double most = 0;
  for (const size_t i : good) most = std::max(most, ports[i].gbps);
  std::erase_if(good, [&](size_t i) { return ports[i].gbps < most; });
  const auto ports_like = [&](size_t i) {
    return std::count_if(good.begin(), good.end(),
                         [&](size_t j) { return ports[j].attr.link_layer == ports[i].attr.link_layer; });
  };
  const size_t usual =
      *std::max_element(good.begin(), good.end(), [&](size_t a, size_t b) { return ports_like(a) < ports_like(b); });
  const abi::LinkLayer network = ports[usual].attr.link_layer;
  std::erase_if(good, [&](size_t i) { return ports[i].attr.link_layer != network; });
}

// The share of one rank alone.
std::vector<std::vector<size_t>> in_turn(size_t ports, const PortWish& wish, int32_t local) {
  const auto count = static_cast<size_t>(std::max(1, wish.nics));
  std::vector<size_t> own;
  for (size_t i = 0; i < count; ++i) own.push_back((static_cast<size_t>(local) * count + i) % ports);
  std::sort(own.begin(), own.end());
  return {own};
}

NicDistances distances_to(const std::vector<Port>& ports, const std::vector<size_t>& good, const PortWish& wish,
                          const TransportContext& context) {
  NicDistances distances;
  for (const RankPlace& rank : context.host_ranks) {
    DevicePlace place{.numa = rank.numa};
    if (!rank.gpu.empty()) place = wish.machine.of_pci_device(rank.gpu);
    std::vector<int32_t>& row = distances.emplace_back();
    for (const size_t i : good) row.push_back(distance_between(place, ports[i].place));
  }
  return distances;
}

void note_users(const std::vector<Port>& ports, const std::vector<std::vector<size_t>>& shares,
                const TransportContext& context, Port& port) {
  for (size_t r = 0; r < shares.size(); ++r) {
    const size_t peers = context.host_ranks.empty() ? context.peers.size() : context.host_ranks[r].peers;
    for (const size_t i : shares[r]) {
      if (device_of(ports[i]) == device_of(port)) port.peers_of_users.push_back(peers);
    }
  }
}

const char* network_text(const Port& port) {
  switch (port.attr.link_layer) {
    case abi::kLinkEthernet: return "RoCE";
    case abi::kLinkInfiniband: return "InfiniBand";
    case abi::kLinkUnspecified: return "EFA";  // the only devices of such a link
  }
  return "unknown network";
}

}  // namespace

abi::Mtu mtu_of_bytes(int32_t bytes) {
  for (const abi::Mtu mtu : {abi::kMtu256, abi::kMtu512, abi::kMtu1024, abi::kMtu2048, abi::kMtu4096}) {
    if (bytes_of(mtu) == bytes) return mtu;
  }
  throw Error(ErrorKind::invalid_argument, {.what = "there is no such path MTU",
                                            .values = fmt::format("mtu = {} bytes", bytes),
                                            .limit = "256, 512, 1024, 2048 or 4096"});
}

int32_t bytes_of(abi::Mtu mtu) { return 128 << mtu; }

std::string Port::text() const {
  const bool is_infiniband = attr.link_layer == abi::kLinkInfiniband;
  return fmt::format("{}, {}, {}, MTU {}", name, network_text(*this),
                     is_infiniband ? fmt::format("LID {}", attr.lid) : gid.text, bytes_of(attr.active_mtu));
}

NicFacts Port::facts(const Verbs& verbs, const MachineMap& machine) const {
  NicFacts facts{
      {"library", library_file(reinterpret_cast<const void*>(verbs.open_device))},
      {"driver", machine.rdma_driver(name.substr(0, name.find(':')))},
      {"firmware", std::string(device.fw_ver, strnlen(device.fw_ver, sizeof(device.fw_ver)))},
      {"part", fmt::format("{:#06x} {} revision {:#x}", device.vendor_id, device.vendor_part_id, device.hw_ver)},
      {"place", fmt::format("{} NUMA node {}", fmt::join(place.path, "/"), place.numa)},
      {"network", network_text(*this)},
      {"address", attr.link_layer == abi::kLinkInfiniband ? fmt::format("LID {}, {}", attr.lid, gid.text) : gid.text},
      {"mtu", fmt::format("{} of {} bytes", bytes_of(attr.active_mtu), bytes_of(attr.max_mtu))},
      {"longest_message", fmt::format("{} bytes", attr.max_msg_sz)},
      {"limits", fmt::format("{} QPs of {} entries, {} CQs of {}, {} MRs", device.max_qp, device.max_qp_wr,
                             device.max_cq, device.max_cqe, device.max_mr)},
      {"capabilities", fmt::format("{:#x}, of the port {:#x}", device.device_cap_flags, attr.port_cap_flags)}};
  facts.insert(facts.end(), own_facts.begin(), own_facts.end());
  return facts;
}

std::string Port::state_now(const Verbs& verbs) const {
  abi::PortAttr now{};
  if (verbs.query_port(context.get(), number, &now) != 0) return "not to be asked any more";
  return state_text(now.state);
}

std::vector<Port> list_ports(const Verbs& verbs, const PortWish& wish) {
  std::vector<Port> ports;
  const DeviceList devices(verbs);
  for (int i = 0; i < devices.size(); ++i) {
    const std::string device = verbs.get_device_name(devices.at(i));
    int port_count = 1;
    for (int number = 1; number <= port_count; ++number) {
      Port port{.context = open_device(verbs, devices.at(i)),
                .name = fmt::format("{}:{}", device, number),
                .number = static_cast<uint8_t>(number)};
      if (!port.context) {
        port.problem = fmt::format("it cannot be opened: {}", errno_text(errno));
      } else if (const int error = verbs.query_device(port.context.get(), &port.device); error != 0) {
        port.problem = fmt::format("it cannot be asked: {}", errno_text(error));
      } else {
        port_count = std::max<int>(1, port.device.phys_port_cnt);
        port.place = wish.machine.of_rdma_device(device);
        port.gbps = wish.machine.rdma_port_gbps(device, number);
        describe(verbs, wish, device, port);
      }
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

std::vector<std::vector<size_t>> share_out_ports(const std::vector<Port>& ports, const PortWish& wish,
                                                 const TransportContext& context) {
  std::vector<size_t> good;
  if (wish.device.empty()) {
    for (size_t i = 0; i < ports.size(); ++i) {
      if (ports[i].problem.empty()) good.push_back(i);
    }
    if (good.empty()) fail_choice(ports, wish, "");
    keep_fastest_network(ports, good);
  } else if (const std::string_view lacking = find_named(ports, wish, good); !lacking.empty()) {
    fail_choice(ports, wish, lacking);
  }
  if (std::cmp_greater(wish.nics, good.size())) fail_count(ports, good, wish);
  std::vector<std::vector<size_t>> shares =
      context.host_ranks.empty() ? in_turn(good.size(), wish, context.local)
                                 : deal_nics(distances_to(ports, good, wish, context), static_cast<size_t>(wish.nics));
  for (std::vector<size_t>& share : shares) {
    for (size_t& place : share) place = good[place];
  }
  return shares;
}

std::vector<Port> open_ports(const Verbs& verbs, const PortWish& wish, const TransportContext& context) {
  std::vector<Port> ports = list_ports(verbs, wish);
  const auto shares = share_out_ports(ports, wish, context);
  for (const size_t i : shares[context.host_index]) note_users(ports, shares, context, ports[i]);
  std::vector<Port> own;
  for (const size_t i : shares[context.host_index]) own.push_back(std::move(ports[i]));
  return own;
}

Port open_port(const Verbs& verbs, const PortWish& wish, const TransportContext& context) {
  return std::move(open_ports(verbs, wish, context)[0]);
}

std::unique_ptr<Transport> make_on_ports(const Verbs& verbs, const PortWish& wish, const TransportContext& context,
                                         const std::function<std::unique_ptr<Transport>(Port)>& make) {
  std::vector<StripedNic> nics;
  std::string names;
  for (Port& port : open_ports(verbs, wish, context)) {
    names +=
        fmt::format("{}{} ({} Gbit/s, NUMA node {})", names.empty() ? "" : ", ", port.name, port.gbps, port.place.numa);
    const std::string name = port.name;
    std::vector<int> processors = wish.machine.processors_of(port.place.numa);
    const double gbps = port.gbps;
    NicFacts facts = port.facts(verbs, wish.machine);
    nics.push_back({make(std::move(port)), name, std::move(processors), gbps, std::move(facts)});
  }
  log_info("NICs of rank {}: {}", context.rank.value, names);
  return make_striped_transport(context, std::move(nics));
}

void check_port_needs(const Port& port, const std::vector<PortNeed>& needs, const std::string& counts,
                      const std::string& where) {
  const bool is_shared = port.peers_of_users.size() > 1;
  for (const PortNeed& need : needs) {
    if (need.most == 0 || std::cmp_less_equal(need.needed, need.most)) continue;
    throw Error(
        ErrorKind::resource,
        {.what = fmt::format("the RDMA device {} has too few {}", port.name, need.what),
         .where = where,
         .values = fmt::format("needed = {}: {} peers{}, {}", need.needed, fmt::join(port.peers_of_users, " + "),
                               is_shared ? " of those on this host that share it" : "", counts),
         .limit = fmt::format("{}", need.most),
         .advice = need.advice});
  }
}

std::vector<PortNeed> common_needs(const Port& port, size_t arena_pieces) {
  const size_t users = port.peers_of_users.size();
  const char* advice = "let fewer ranks share it, see nics";
  return {{"memory regions", users * (1 + arena_pieces), port.device.max_mr, advice},
          {"protection domains", users, port.device.max_pd, advice}};
}

}  // namespace tilewire::verbs

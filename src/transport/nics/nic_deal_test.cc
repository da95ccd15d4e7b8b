// Which rank takes which NIC, on machines as they are rented out and on ones that are half broken.
#include "transport/nics/nic_deal.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <tilewire/error.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <thread>

#include "base/log.h"
#include "transport/error_text.h"
#include "transport/nics/fake_sysfs.h"
#include "transport/nics/machine_map.h"
#include "transport/nics/near_processors.h"
#include "transport/verbs/fake_device.h"
#include "transport/verbs/port.h"

namespace tilewire {
namespace {

using Dealt = std::vector<std::vector<size_t>>;

// How many ranks use each NIC.
std::vector<size_t> users_of(const Dealt& dealt, size_t nics) {
  std::vector<size_t> users(nics, 0);
  for (const auto& own : dealt) {
    for (const size_t n : own) ++users[n];
  }
  return users;
}

// A machine of tests/topologies as the kernel would show it, with the RDMA devices that a library would list.
class Machine {
 public:
  explicit Machine(const std::string& name) {
    std::ifstream file(std::string(TILEWIRE_TOPOLOGIES) + "/" + name + ".json");
    const nlohmann::json facts = nlohmann::json::parse(file);
    for (const auto& device : facts.at("devices")) add(device);
    for (const int node : nodes_) sysfs_.add_numa_node(node, fmt::format("{}-{}", node * 8, node * 8 + 7));
  }

  MachineMap map() const { return MachineMap(sysfs_.root().string()); }
  const FakeSysfs& sysfs() const { return sysfs_; }
  size_t gpus() const { return gpus_.size(); }
  FakeDevice& devices() { return devices_; }
  int port_number(const std::string& name) const {
    for (size_t i = 0; i < devices_.ports.size(); ++i) {
      if (devices_.ports[i].device + ":1" == name) return static_cast<int>(i);
    }
    return -1;
  }
  // The bridge right above a device.
  std::string bridge_of(const std::string& rdma_port) const { return bridge_of_nic_.at(rdma_port); }
  std::string bridge_of_gpu(size_t gpu) const { return gpus_.at(gpu).second; }

  // Names of the ports of a rank on each of these GPUs.
  std::vector<std::vector<std::string>> ports(const std::vector<size_t>& of_gpus, int nics = 0,
                                              const std::string& device = "") {
    TransportContext context{.rank = Rank{0}};
    for (const size_t gpu : of_gpus) context.host_ranks.push_back({.gpu = gpus_.at(gpu).first});
    const verbs::Verbs verbs = devices_.table();
    const verbs::PortWish wish{
        .device_option = "rc_device", .device = device, .nics = nics, .machine = map(), .judge = [](verbs::Port&) {
          return std::string();
        }};
    std::vector<std::vector<std::string>> all;
    const std::vector<verbs::Port> ports = list_ports(verbs, wish);
    for (const auto& share : share_out_ports(ports, wish, context)) {
      auto& names = all.emplace_back();
      for (const size_t port : share) names.push_back(ports[port].name);
    }
    // What a rank opens is its share.
    context.host_index = of_gpus.size() - 1;
    const std::vector<verbs::Port> opened = open_ports(verbs, wish, context);
    EXPECT_TRUE(std::equal(opened.begin(), opened.end(), all.back().begin(), all.back().end(),
                           [](const verbs::Port& port, const std::string& name) { return port.name == name; }));
    return all;
  }
  std::vector<std::vector<std::string>> ports() {
    std::vector<size_t> all(gpus());
    std::iota(all.begin(), all.end(), 0);
    return ports(all);
  }

 private:
  void add(const nlohmann::json& device) {
    const std::string pci = device.at("pci");
    const auto above = device.find("parent");
    const std::string parent =
        above == device.end() ? "pci" + pci.substr(0, 7) : path_of_.at(above->get<std::string>());
    const std::string path = path_of_[pci] = parent + "/" + pci;
    const int numa = device.at("numa");
    nodes_.insert(numa);
    sysfs_.add_pci_device(path, numa);
    if (device.at("kind") == "gpu") gpus_.emplace_back(pci, parent);
    if (device.at("kind") != "nic") return;
    std::vector<std::pair<std::string, double>> ports;
    if (device.contains("ports")) {
      for (const auto& port : device.at("ports")) ports.emplace_back(port.at("name"), port.at("gbps"));
    } else {
      ports.emplace_back(fmt::format("nic{}", devices_.ports.size()), 100);
    }
    for (const auto& [name, gbps] : ports) {
      sysfs_.add_rdma_device(name, path, gbps);
      devices_.ports.push_back(FakeDevice::port(name));
      bridge_of_nic_[name + ":1"] = parent;
    }
  }

  FakeSysfs sysfs_;
  FakeDevice devices_;
  std::map<std::string, std::string> path_of_, bridge_of_nic_;
  std::vector<std::pair<std::string, std::string>> gpus_;  // address, path of the bridge above
  std::set<int> nodes_;
};

std::map<std::string, size_t> users_of(const std::vector<std::vector<std::string>>& ports) {
  std::map<std::string, size_t> users;
  for (const auto& own : ports) {
    for (const std::string& name : own) ++users[name];
  }
  return users;
}

struct Expected {
  const char* machine;
  size_t each;       // ports of a rank, with a rank a GPU
  size_t users;      // of each port
  bool same_switch;  // each port is below the bridge of the ranks that use it
};

TEST(NicDeal, OnRentedMachinesNoNicIsIdleNoneOverloadedAndEachIsNear) {
  for (const Expected& e : {Expected{"azure-ndv5-8xh100", 1, 1, true}, Expected{"azure-ndv4-8xa100", 1, 1, true},
                            Expected{"aws-p5-8xh100", 4, 1, true}, Expected{"aws-p4d-8xa100", 1, 2, true},
                            Expected{"aws-p4de-8xa100", 1, 2, true}, Expected{"azure-ndv2-8xv100", 1, 8, false},
                            Expected{"oci-8xh100", 2, 1, false}}) {
    Machine machine(e.machine);
    ASSERT_EQ(machine.gpus(), 8u);
    const auto ports = machine.ports();
    const auto users = users_of(ports);
    EXPECT_EQ(users.size(), machine.devices().ports.size()) << e.machine << ": a NIC is idle";
    for (const auto& [name, count] : users) EXPECT_EQ(count, e.users) << e.machine << " " << name;
    for (size_t gpu = 0; gpu < ports.size(); ++gpu) {
      EXPECT_EQ(ports[gpu].size(), e.each) << e.machine << " GPU " << gpu;
      for (const std::string& name : ports[gpu]) {
        if (!e.same_switch) continue;
        EXPECT_EQ(machine.bridge_of(name), machine.bridge_of_gpu(gpu)) << e.machine << " GPU " << gpu << " " << name;
      }
    }
  }
}

// Switches in a row: GPU and NIC are each below one more, and both below the first.
TEST(NicDeal, BothPortsOfTheNicBelowTheSwitchOfItsGpuAreItsOwn) {
  Machine machine("oci-8xh100");
  const auto ports = machine.ports();
  for (size_t gpu = 0; gpu < ports.size(); ++gpu) {
    ASSERT_EQ(ports[gpu].size(), 2u);
    EXPECT_EQ(machine.bridge_of(ports[gpu][0]), machine.bridge_of(ports[gpu][1]));
    const auto first_bridge = [](const std::string& path) {
      return path.substr(0, path.find('/', path.find('/') + 1));
    };
    EXPECT_EQ(first_bridge(machine.bridge_of(ports[gpu][0])), first_bridge(machine.bridge_of_gpu(gpu)));
  }
}

TEST(NicDeal, AMachineWithoutNicsIsSaidToHaveNone) {
  Machine machine("azure-ncv4-4xa100");
  EXPECT_SAYS(error_of([&] { machine.ports(); }), "there is no RDMA device");
}

TEST(NicDeal, OneRankTakesWhatIsNearItsGpuAndLeavesTheRestOfTheMachineAlone) {
  EXPECT_EQ(Machine("aws-p5-8xh100").ports({3}),
            (std::vector<std::vector<std::string>>{{"rdmap129s0:1", "rdmap130s0:1", "rdmap131s0:1", "rdmap132s0:1"}}));
  EXPECT_EQ(Machine("azure-ndv5-8xh100").ports({5})[0].size(), 1u);
  // Two NICs below the switch, and the other GPU there has no rank.
  EXPECT_EQ(Machine("azure-ndv4-8xa100").ports({0, 2, 4, 6})[0].size(), 2u);
  EXPECT_EQ(Machine("azure-ndv4-8xa100").ports({0, 1})[0].size(), 1u);
}

TEST(NicDeal, APortThatIsDownIsNeverTakenAndItsRankSharesEvenly) {
  for (const char* name : {"azure-ndv5-8xh100", "aws-p4d-8xa100", "aws-p5-8xh100", "oci-8xh100", "azure-ndv4-8xa100"}) {
    Machine machine(name);
    const size_t all = machine.devices().ports.size();
    for (size_t down = 1; down < all; down += 7) {
      machine.devices().ports[down].attr.state = verbs::abi::kPortDown;
      const auto ports = machine.ports();
      EXPECT_EQ(users_of(ports).count(machine.devices().ports[down].device + ":1"), 0u) << name;
      size_t fewest = SIZE_MAX, most = 0;
      for (const auto& [port, count] : users_of(ports)) {
        fewest = std::min(fewest, count);
        most = std::max(most, count);
      }
      EXPECT_LE(most, fewest + 1) << name << " without port " << down;
      for (const auto& own : ports) EXPECT_EQ(own.size(), ports[0].size()) << name;
      // Where a rank has several, all make do with one less; else all that are left are used.
      if (ports[0].size() == 1 && all <= 8) {
        EXPECT_EQ(users_of(ports).size(), all - 1) << name;
      }
      machine.devices().ports[down].attr.state = verbs::abi::kPortActive;
    }
  }
}

TEST(NicDeal, SlowPortsAndOtherNetworksAreLeftAloneUnlessTheyAreNamed) {
  Machine machine("azure-ndv5-8xh100");
  // As near to the first GPU as its own NIC.
  const std::string storage = machine.bridge_of_gpu(0) + "/0000:01:00.0",
                    ethernet = machine.bridge_of_gpu(0) + "/0000:02:00.0";
  machine.sysfs().add_pci_device(storage, 0);
  machine.sysfs().add_rdma_device("storage", storage, 25);
  machine.devices().ports.insert(machine.devices().ports.begin(), FakeDevice::port("storage"));
  EXPECT_EQ(users_of(machine.ports()).count("storage:1"), 0u);
  EXPECT_EQ(machine.ports({0}, 0, "storage"), (std::vector<std::vector<std::string>>{{"storage:1"}}));
  EXPECT_EQ(machine.ports({0}, 2, "storage,nic7:1"), (std::vector<std::vector<std::string>>{{"storage:1", "nic7:1"}}));
  machine.devices().ports.insert(machine.devices().ports.begin(), FakeDevice::port("ethernet"));
  machine.sysfs().add_pci_device(ethernet, 0);
  machine.sysfs().add_rdma_device("ethernet", ethernet, 100);
  for (FakeDevice::Port& port : machine.devices().ports) {
    if (port.device != "ethernet") port.attr.link_layer = verbs::abi::kLinkInfiniband;
  }
  EXPECT_EQ(users_of(machine.ports()).count("ethernet:1"), 0u);
}

TEST(NicDeal, ANumberThatIsAskedForIsGivenOrRefusedWithWhatThereIs) {
  Machine machine("azure-ndv5-8xh100");
  for (const auto& own : machine.ports({0, 1, 2, 3, 4, 5, 6, 7}, 3)) EXPECT_EQ(own.size(), 3u);
  for (const auto& [name, count] : users_of(machine.ports({0, 1, 2, 3, 4, 5, 6, 7}, 3))) EXPECT_EQ(count, 3u) << name;
  const Error error = error_of([&] { machine.ports({0}, 9); });
  EXPECT_EQ(error.kind(), ErrorKind::invalid_argument);
  EXPECT_SAYS(error, "nics = 9");
  EXPECT_SAYS(error, "8 ports can be used: nic0:1, nic1:1");
}

TEST(NicDeal, RanksOfWhichNothingIsKnownTakeNicsInTheirOrder) {
  EXPECT_EQ(deal_nics(NicDistances(2, std::vector<int32_t>(4, 3000)), 0), (Dealt{{0, 1}, {2, 3}}));
  EXPECT_EQ(deal_nics(NicDistances(4, std::vector<int32_t>(2, 3000)), 0), (Dealt{{0}, {0}, {1}, {1}}));
  EXPECT_EQ(deal_nics(NicDistances(1, std::vector<int32_t>(1, 3000)), 0), (Dealt{{0}}));
}

TEST(NicDeal, AnyNumbersAreDealtEvenly) {
  for (size_t ranks = 1; ranks <= 9; ++ranks) {
    for (size_t nics = 1; nics <= 9; ++nics) {
      for (size_t each = 1; each <= nics; ++each) {
        NicDistances distances(ranks, std::vector<int32_t>(nics));
        for (size_t r = 0; r < ranks; ++r) {
          for (size_t n = 0; n < nics; ++n) distances[r][n] = static_cast<int32_t>((r * 7 + n * 13 + each) % 5 * 1000);
        }
        const Dealt dealt = deal_nics(distances, each);
        const auto users = users_of(dealt, nics);
        const auto [fewest, most] = std::minmax_element(users.begin(), users.end());
        ASSERT_LE(*most, *fewest + 1) << ranks << " ranks, " << nics << " NICs, " << each << " each";
        for (const auto& own : dealt) ASSERT_EQ(std::set<size_t>(own.begin(), own.end()).size(), each);
      }
    }
  }
}

TEST(NicDeal, AmongEvenDealsTheNearestIsTakenThoughTheFirstRanksWouldTakeItAway) {
  // Rank 0 does not mind; rank 1 is near NIC 0 alone.
  EXPECT_EQ(deal_nics({{1, 1}, {1, 3000}}, 1), (Dealt{{1}, {0}}));
  EXPECT_EQ(deal_nics({{2, 4, 3000}, {2, 3000, 3000}, {3000, 2, 4}}, 1), (Dealt{{1}, {0}, {2}}));
}

TEST(MachineMap, WhatTheKernelDoesNotSayIsUnknown) {
  FakeSysfs sysfs;
  const MachineMap map(sysfs.root().string());
  EXPECT_TRUE(map.of_rdma_device("mlx5_0").path.empty());
  EXPECT_EQ(map.of_rdma_device("mlx5_0").numa, -1);
  EXPECT_EQ(map.rdma_port_gbps("mlx5_0", 1), 0);
  EXPECT_TRUE(map.processors_of(0).empty());
  EXPECT_TRUE(map.processors_of(-1).empty());
  sysfs.add_rdma_device("rxe0", "", 2.5);  // no PCI device
  EXPECT_TRUE(map.of_rdma_device("rxe0").path.empty());
  EXPECT_EQ(map.rdma_port_gbps("rxe0", 1), 2.5);
  sysfs.add_pci_device("pci0000:00/0000:00:02.0/10000:3f:00.0", -1);  // a domain beyond 16 bits, no NUMA node
  const DevicePlace place = map.of_pci_device("10000:3F:00.0");
  EXPECT_EQ(place.path, (std::vector<std::string>{"pci0000:00", "0000:00:02.0", "10000:3f:00.0"}));
  EXPECT_EQ(place.numa, -1);
}

TEST(MachineMap, NearerIsSmaller) {
  const DevicePlace gpu{{"pci0000:00", "0000:00:01.0", "0000:02:00.0", "0000:03:00.0"}, 0};
  const DevicePlace same_switch{{"pci0000:00", "0000:00:01.0", "0000:02:00.0", "0000:04:00.0"}, 0};
  const DevicePlace switch_above{{"pci0000:00", "0000:00:01.0", "0000:05:00.0", "0000:06:00.0"}, 0};
  const DevicePlace host_bridge{{"pci0000:00", "0000:00:02.0", "0000:07:00.0"}, 0};
  const DevicePlace numa{{"pci0000:40", "0000:40:01.0", "0000:41:00.0"}, 0};
  const DevicePlace far{{"pci0000:80", "0000:80:01.0", "0000:81:00.0"}, 1};
  const DevicePlace unknown{};
  int32_t before = 0;
  for (const DevicePlace& next : {same_switch, switch_above, host_bridge, numa, far}) {
    EXPECT_LT(before, distance_between(gpu, next));
    before = distance_between(gpu, next);
  }
  EXPECT_EQ(distance_between(gpu, unknown), distance_between(gpu, far));
  EXPECT_EQ(distance_between(unknown, DevicePlace{}), distance_between(gpu, far)) << "no NUMA node is none in common";
}

TEST(MachineMap, ARankIsOnTheNodeThatHasAllItsProcessors) {
  FakeSysfs sysfs;
  const MachineMap map(sysfs.root().string());
  EXPECT_EQ(map.numa_of({0}), -1);
  sysfs.add_numa_node(0, "0-3,8-11");
  sysfs.add_numa_node(1, "4-7");
  sysfs.add_numa_node(2, "");  // memory alone
  sysfs.write("devices/system/node/has_cpu", "0-1");
  EXPECT_EQ(map.numa_of({8, 9}), 0);
  EXPECT_EQ(map.numa_of({4}), 1);
  EXPECT_EQ(map.numa_of({3, 4}), -1);
  EXPECT_EQ(map.numa_of({}), -1);
  EXPECT_TRUE(map.processors_of(2).empty());
}

TEST(MachineMap, ListsOfProcessorsAreReadAndNonsenseIsNone) {
  EXPECT_EQ(parse_processor_list("0-3,8"), (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_TRUE(parse_processor_list("").empty());
  EXPECT_TRUE(parse_processor_list("none").empty());
  EXPECT_TRUE(parse_processor_list("5-2").empty());
  EXPECT_EQ(parse_processor_list("x,7,"), (std::vector<int>{7}));
  EXPECT_LE(parse_processor_list("0-2000000000").size(), 1u << 16);
}

TEST(NearProcessors, AThreadStaysWhereItIsAllowedAndSaysOnceWhenNothingNearIs) {
  std::vector<std::string> lines;
  const LogSink before = set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  std::thread([&] {
    const std::vector<int> allowed = allowed_processors();
    ASSERT_FALSE(allowed.empty());
    EXPECT_FALSE(stay_near({}, "the proxy"));
    EXPECT_TRUE(lines.empty());
    EXPECT_FALSE(stay_near({1 << 20}, "the proxy"));
    EXPECT_FALSE(stay_near({1 << 20}, "the proxy"));
    EXPECT_EQ(allowed_processors(), allowed);
    ASSERT_EQ(lines.size(), 1u);
    EXPECT_NE(lines[0].find("none of the processors near it is allowed here"), std::string::npos) << lines[0];
    if (allowed.size() < 2) return;
    EXPECT_TRUE(stay_near({allowed[1], 1 << 20}, "the proxy"));
    EXPECT_EQ(allowed_processors(), (std::vector<int>{allowed[1]}));
  }).join();
  set_log_sink(before);
}

}  // namespace
}  // namespace tilewire

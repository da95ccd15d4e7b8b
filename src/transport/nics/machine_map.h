// Where devices sit in a machine, as the kernel tells it below /sys: which PCI bridges are above a device, and which NUMA
// node it is on. Reading alone: what does not say is unknown, never an error.
//
// Thread-safety: constant.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewire {

struct DevicePlace {
  std::vector<std::string> path{};  // host bridge, PCI bridges and the device itself, outermost first; empty: unknown
  int32_t numa = -1;                // -1: unknown, or the machine has one node
};

class MachineMap {
 public:
  // Another `sysfs` than that of this machine: a copy of one, for tests.
  explicit MachineMap(std::string sysfs = "/sys") : sysfs_(std::move(sysfs)) {}

  // Of an RDMA device: "mlx5_0". One that is no PCI device, such as soft-RoCE, has no path.
  DevicePlace of_rdma_device(const std::string& name) const;
  // Of the PCI device with that address, "0000:3f:00.0", in any case of letters.
  DevicePlace of_pci_device(std::string address) const;
  // Its driver, with its version where it has one of its own: "mlx5_core", "efa 2.13.0"; "": unknown.
  std::string rdma_driver(const std::string& name) const;
  // Rate of a port; 0: unknown.
  double rdma_port_gbps(const std::string& name, int port) const;
  // Processors of a NUMA node; none where it has none or is unknown.
  std::vector<int> processors_of(int32_t numa) const;
  // The one node that has all of these processors; -1: there is none, or the machine has one node only.
  int32_t numa_of(const std::vector<int>& processors) const;

 private:
  std::string sysfs_;
};

// Smaller is nearer: below a common PCI bridge by the number of bridges in between, then behind one host bridge, then on
// one NUMA node, then anywhere in the machine.
int32_t distance_between(const DevicePlace& a, const DevicePlace& b);

// "0-3,8" -> 0 1 2 3 8. What makes no sense is left out.
std::vector<int> parse_processor_list(std::string_view text);

}  // namespace tilewire

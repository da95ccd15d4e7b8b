// For tests: a /sys of a machine that is not here, in a folder that goes with the object.
#pragma once

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tilewire {

class FakeSysfs {
 public:
  FakeSysfs() {
    const std::filesystem::path memory = "/dev/shm";  // hundreds of files: some disks take seconds for them
    const auto place = std::filesystem::exists(memory) ? memory : std::filesystem::temp_directory_path();
    std::string name = (place / "fake-sysfs-XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~FakeSysfs() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

  const std::filesystem::path& root() const { return root_; }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text << '\n';
  }
  // `path` below devices: "pci0000:00/0000:00:01.0/0000:01:00.0".
  void add_pci_device(const std::string& path, int numa) const {
    write("devices/" + path + "/numa_node", fmt::format("{}", numa));
    link("bus/pci/devices/" + std::filesystem::path(path).filename().string(), path);
  }
  void add_rdma_device(const std::string& name, const std::string& path, double gbps) const {
    write("class/infiniband/" + name + "/ports/1/rate", fmt::format("{} Gb/sec (4X HDR)", gbps));
    if (!path.empty()) link("class/infiniband/" + name + "/device", path);
  }
  // `processors` as the kernel writes lists; empty: a node of memory alone.
  void add_numa_node(int node, const std::string& processors) const {
    write(fmt::format("devices/system/node/node{}/cpulist", node), processors);
  }

 private:
  void link(const std::string& name, const std::string& path) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::filesystem::create_directory_symlink(root_ / "devices" / path, root_ / name);
  }

  std::filesystem::path root_;
};

}  // namespace tilewire

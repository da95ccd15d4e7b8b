// The network between the soft-RoCE devices of the guest (see guest): tests make it lossy, dead or whole again.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace tilewire {

inline constexpr int kGuestDevices = 8;  // of the guest, see CMakeLists.txt
inline constexpr int kGuestNodes = 2;    // that tests play

// The device of a node where it has one.
inline std::string guest_device(int node) { return fmt::format("rxe{}", node % kGuestNodes); }

// All that a node has: for node 0 "rxe0,rxe2,rxe4,rxe6".
inline std::string guest_devices_of_node(int node) {
  std::string list;
  for (int i = node % kGuestNodes; i < kGuestDevices; i += kGuestNodes) {
    list += fmt::format("{}rxe{}", list.empty() ? "" : ",", i);
  }
  return list;
}

inline void run_shell(const std::string& command) {
  if (std::system(command.c_str()) != 0) throw std::runtime_error("failed: " + command);
}

// What a command prints.
inline std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) throw std::runtime_error("failed: " + command);
  std::string text;
  char part[512];
  while (fgets(part, sizeof(part), pipe.get()) != nullptr) text += part;
  return text;
}

// What happens to packets that leave the ports of guest_device(), until this goes. `netem` as tc takes it: "loss 1%".
class WireFault {
 public:
  explicit WireFault(const std::string& netem, int first = 0, int last = kGuestNodes - 1) : first_(first), last_(last) {
    for (int i = first_; i <= last_; ++i) {
      run_shell(fmt::format("tc qdisc replace dev port{} root netem limit 100000 {}", i, netem));
    }
  }
  ~WireFault() {
    for (int i = first_; i <= last_; ++i) run_shell(fmt::format("tc qdisc del dev port{} root", i));
  }
  // Packets that it has kept from their way.
  int64_t dropped() const {
    int64_t count = 0;
    for (int i = first_; i <= last_; ++i) {
      const std::string text = output_of(fmt::format("tc -s qdisc show dev port{} root", i));
      if (const size_t at = text.find("dropped "); at != std::string::npos) count += std::atoll(text.c_str() + at + 8);
    }
    return count;
  }
  WireFault(const WireFault&) = delete;
  WireFault& operator=(const WireFault&) = delete;

 private:
  int first_;
  int last_;
};

// A port that is down until this goes. Its routes and neighbours go with it.
class PortDown {
 public:
  explicit PortDown(int port) : port_(port) { run_shell(fmt::format("ip link set port{} down", port_)); }
  ~PortDown() {
    run_shell(fmt::format("ip link set port{} up", port_));
    run_shell(fmt::format("ip route replace 10.77.0.0/24 dev port{0} src 10.77.0.{1} table {2}", port_, port_ + 1,
                          100 + port_));
    for (int i = 0; i < kGuestDevices; ++i) {
      if (i == port_) continue;
      run_shell(fmt::format("ip neigh replace 10.77.0.{} lladdr 02:77:00:00:00:{:02x} dev port{} nud permanent", i + 1,
                            i + 1, port_));
    }
  }
  PortDown(const PortDown&) = delete;
  PortDown& operator=(const PortDown&) = delete;

 private:
  int port_;
};

}  // namespace tilewire

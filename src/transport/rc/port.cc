#include "transport/rc/port.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>

namespace tilewire {
namespace {

using verbs::Verbs;

const char* state_text(verbs::abi::PortState state) {
  switch (state) {
    case verbs::abi::kPortDown: return "down";
    case verbs::abi::kPortInit: return "initialising";
    case verbs::abi::kPortArmed: return "armed";
    case verbs::abi::kPortActive: return "active";
    default: return "in no known state";
  }
}

// Libraries before rdma-core 31 do not tell the type of an entry; the kernel does.
verbs::abi::GidType type_from_kernel(const std::string& device, int port, int index) {
  std::ifstream file(fmt::format("/sys/class/infiniband/{}/ports/{}/gid_attrs/types/{}", device, port, index));
  std::string line;
  std::getline(file, line);
  return line.find("v2") != std::string::npos ? verbs::abi::kGidRoceV2 : verbs::abi::kGidRoceV1;
}

GidRow read_gid(const Verbs& verbs, const RcPort& port, const std::string& device, int32_t index) {
  GidRow row{.index = index};
  if (verbs.query_gid_entry != nullptr) {
    verbs::abi::GidEntry entry{};
    const int error =
        verbs.query_gid_entry(port.context.get(), port.number, static_cast<uint32_t>(index), &entry, 0, sizeof(entry));
    // ENODATA is an empty row.
    row.is_readable = error == 0 || error == ENODATA;
    if (error == 0) row.gid = entry.gid;
    row.type = static_cast<verbs::abi::GidType>(entry.gid_type);
  } else {
    row.is_readable = verbs.query_gid(port.context.get(), port.number, index, &row.gid) == 0;
    row.type = type_from_kernel(device, port.number, index);
  }
  return row;
}

std::string find_problem(const RcPort& port, const RcOptions& options) {
  if (port.attr.state != verbs::abi::kPortActive) return fmt::format("the port is {}", state_text(port.attr.state));
  if (port.is_ethernet() && port.gid.index < 0) return port.gid.text;
  if (!port.is_ethernet() && port.attr.lid == 0) return "the port has no LID: is there a subnet manager?";
  if (options.mtu_bytes > bytes_of(port.attr.active_mtu)) {
    return fmt::format("the path MTU asked for is {}, that of the port {}", options.mtu_bytes,
                       bytes_of(port.attr.active_mtu));
  }
  return "";
}

void describe(const Verbs& verbs, const RcOptions& options, const std::string& device, RcPort& port) {
  const int error = verbs.query_port(port.context.get(), port.number, &port.attr);
  if (error != 0) {
    port.problem = fmt::format("the port cannot be asked: {}", verbs::errno_text(error));
    return;
  }
  std::vector<GidRow> table;
  table.reserve(static_cast<size_t>(std::max(0, port.attr.gid_tbl_len)));
  for (int32_t i = 0; i < port.attr.gid_tbl_len; ++i) table.push_back(read_gid(verbs, port, device, i));
  if (port.is_ethernet()) {
    port.gid = choose_gid(table, options.gid_index);
  } else if (!table.empty()) {
    const auto row = static_cast<size_t>(std::clamp(options.gid_index, 0, port.attr.gid_tbl_len - 1));
    port.gid = {.index = static_cast<int32_t>(row), .gid = table[row].gid, .text = gid_text(table[row].gid)};
  }
  port.problem = find_problem(port, options);
}

// The devices of this machine, as long as it lives.
class DeviceList {
 public:
  explicit DeviceList(const Verbs& verbs) : verbs_(verbs), devices_(verbs.get_device_list(&count_)) {
    if (devices_ != nullptr) return;
    throw Error(ErrorKind::unavailable, {.what = "the RDMA devices cannot be listed",
                                         .values = verbs::errno_text(errno),
                                         .advice = "load ib_uverbs; in a container give it /dev/infiniband"});
  }
  ~DeviceList() { verbs_.free_device_list(devices_); }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  int size() const { return count_; }
  verbs::abi::Device* at(int i) const { return devices_[i]; }

 private:
  const Verbs& verbs_;
  int count_ = 0;
  verbs::abi::Device** devices_;
};

verbs::Context open_device(const Verbs& verbs, verbs::abi::Device* device) {
  return {verbs, verbs.open_device(device)};
}

bool is_asked_for(const RcPort& port, const RcOptions& options) {
  return options.device.empty() || port.name == options.device ||
         port.name.substr(0, port.name.find(':')) == options.device;
}

[[noreturn]] void fail_choice(const std::vector<RcPort>& ports, const RcOptions& options) {
  std::string there;
  for (const RcPort& port : ports) {
    there += fmt::format("{}{}: {}", there.empty() ? "" : "; ", port.name,
                         port.problem.empty() ? "can be used" : port.problem);
  }
  throw Error(ErrorKind::unavailable,
              {.what = options.device.empty() ? "no port of an RDMA device can be used"
                                              : "the RDMA device that was asked for cannot be used",
               .values = options.device.empty() ? "" : fmt::format("rc_device = {}", options.device),
               .limit = there.empty() ? "there is no RDMA device" : "there are: " + there,
               .advice = "see `rdma link` and `ibv_devinfo`; in a container give it /dev/infiniband"});
}

}  // namespace

std::string RcPort::text() const {
  return fmt::format("{}, {}, {}, MTU {}", name, is_ethernet() ? "RoCE" : "InfiniBand",
                     is_ethernet() ? gid.text : fmt::format("LID {}", attr.lid), bytes_of(attr.active_mtu));
}

std::string RcPort::state_now(const Verbs& verbs) const {
  verbs::abi::PortAttr now{};
  if (verbs.query_port(context.get(), number, &now) != 0) return "not to be asked any more";
  return state_text(now.state);
}

std::vector<RcPort> list_rc_ports(const Verbs& verbs, const RcOptions& options) {
  std::vector<RcPort> ports;
  const DeviceList devices(verbs);
  for (int i = 0; i < devices.size(); ++i) {
    const std::string device = verbs.get_device_name(devices.at(i));
    int port_count = 1;
    for (int number = 1; number <= port_count; ++number) {
      RcPort port{.context = open_device(verbs, devices.at(i)),
                  .name = fmt::format("{}:{}", device, number),
                  .number = static_cast<uint8_t>(number)};
      if (!port.context) {
        port.problem = fmt::format("it cannot be opened: {}", verbs::errno_text(errno));
      } else if (const int error = verbs.query_device(port.context.get(), &port.device); error != 0) {
        port.problem = fmt::format("it cannot be asked: {}", verbs::errno_text(error));
      } else {
        port_count = std::max<int>(1, port.device.phys_port_cnt);
        describe(verbs, options, device, port);
      }
      ports.push_back(std::move(port));
    }
  }
  return ports;
}

RcPort open_rc_port(const Verbs& verbs, const RcOptions& options, int32_t local) {
  std::vector<RcPort> ports = list_rc_ports(verbs, options);
  std::vector<size_t> good;
  for (size_t i = 0; i < ports.size(); ++i) {
    if (is_asked_for(ports[i], options) && ports[i].problem.empty()) good.push_back(i);
  }
  if (good.empty()) fail_choice(ports, options);
  return std::move(ports[good[static_cast<size_t>(local) % good.size()]]);
}

std::string why_no_rc_port(const RcOptions& options) {
  try {
    open_rc_port(verbs::load_verbs(options.library), options, 0);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tilewire

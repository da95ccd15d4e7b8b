#include "transport/rc/rc_port.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>

namespace tilewire {
namespace {

using namespace verbs;

// Its row of the GID table is needed for other subnets alone.
std::string judge_infiniband(const RcOptions& options, Port& port) {
  if (!port.gids.empty()) {
    const auto row = static_cast<size_t>(std::clamp(options.gid_index, 0, port.attr.gid_tbl_len - 1));
    const GidRow& gid = port.gids[row];
    port.gid = {.index = gid.index, .gid = gid.gid, .text = gid_text(gid.gid)};
  }
  return port.attr.lid == 0 ? "the port has no LID: is there a subnet manager?" : "";
}

std::string judge(const RcOptions& options, Port& port) {
  std::string problem;
  switch (port.attr.link_layer) {
    case abi::kLinkEthernet:
      port.gid = choose_gid(port.gids, options.gid_index);
      if (port.gid.index < 0) problem = port.gid.text;
      break;
    case abi::kLinkInfiniband: problem = judge_infiniband(options, port); break;
    default: problem = "it is neither InfiniBand nor RoCE"; break;
  }
  if (problem.empty() && options.mtu_bytes > bytes_of(port.attr.active_mtu)) {
    problem = fmt::format("the path MTU asked for is {}, that of the port {}", options.mtu_bytes,
                          bytes_of(port.attr.active_mtu));
  }
  return problem;
}

}  // namespace

PortWish rc_port_wish(const RcOptions& options) {
  return {
      .device_option = "rc_device",
      .device = options.device,
      // Words behind their data go by one way, also those that wait for its acknowledgement: what another NIC of the
      // receiver has acknowledged may still be on its way into memory.
      .nics = options.signal == RcSignal::immediate ? options.nics : 1,
      .judge = [options](Port& port) { return judge(options, port); }};
}

abi::Mtu own_mtu(const Port& port, const RcOptions& options) {
  return options.mtu_bytes > 0 ? mtu_of_bytes(options.mtu_bytes) : port.attr.active_mtu;
}

std::string why_no_rc_port(const RcOptions& options) {
  try {
    open_ports(load_verbs(options.library), rc_port_wish(options), {});
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace tilewire

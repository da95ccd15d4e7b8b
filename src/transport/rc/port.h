// The port of an RDMA device that a rank sends through: found, chosen and opened.
#pragma once

#include <string>
#include <vector>

#include "transport/rc/gid_choice.h"
#include "transport/rc/rc_options.h"
#include "transport/verbs/handles.h"

namespace tilewire {

struct RcPort {
  verbs::Context context;
  std::string name;  // "mlx5_0:1"
  uint8_t number = 1;
  verbs::abi::DeviceAttr device{};
  verbs::abi::PortAttr attr{};
  GidChoice gid{};        // of RoCE; for InfiniBand the first entry, which other subnets need
  std::string problem{};  // "" when it can be used; else why not

  bool is_ethernet() const { return attr.link_layer == verbs::abi::kLinkEthernet; }
  // "mlx5_0:1, RoCE, GID 3 (::ffff:10.0.0.1, RoCE v2), MTU 4096"
  std::string text() const;
  // "active", "down": now.
  std::string state_now(const verbs::Verbs& verbs) const;
};

// Every port of every device that can be opened, with what is wrong with it. Throws Error(unavailable) where devices
// cannot be listed at all.
std::vector<RcPort> list_rc_ports(const verbs::Verbs& verbs, const RcOptions& options);

// The one that options.device names, or of all that can be used the one whose turn it is: the ranks of a node take them
// in turn by `local`. Throws Error(unavailable) with every port and what is wrong with it.
RcPort open_rc_port(const verbs::Verbs& verbs, const RcOptions& options, int32_t local);

// "" when there is a port that open_rc_port() would take, else why not.
std::string why_no_rc_port(const RcOptions& options);

}  // namespace tilewire

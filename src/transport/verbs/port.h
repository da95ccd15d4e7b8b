// Ports of RDMA devices: found, judged and chosen. What a transport needs of a port it says in a PortWish.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/nics/machine_map.h"
#include "transport/transport.h"
#include "transport/verbs/gid_choice.h"
#include "transport/verbs/handles.h"

namespace tilewire::verbs {

// 4096 -> kMtu4096. Throws Error(invalid_argument) for what is no path MTU.
abi::Mtu mtu_of_bytes(int32_t bytes);
int32_t bytes_of(abi::Mtu mtu);

struct Port {
  Context context;
  std::string name;  // "mlx5_0:1"
  uint8_t number = 1;
  abi::DeviceAttr device{};
  abi::PortAttr attr{};
  std::vector<GidRow> gids{};  // all rows of its table
  GidChoice gid{};             // the one that names this end of a path
  std::string problem{};       // "" when it can be used; else why not
  DevicePlace place{};         // in the machine
  double gbps = 0;             // its rate; 0: unknown
  // What else lives on its device: of each transport that a rank of this host has there, this one's too, how many peers.
  std::vector<size_t> peers_of_users{};
  NicFacts own_facts{};  // that devices of its kind alone have

  bool is_ethernet() const { return attr.link_layer == abi::kLinkEthernet; }
  // "mlx5_0:1, RoCE, GID 3 (::ffff:10.0.0.1, RoCE v2), MTU 4096"
  std::string text() const;
  // Driver, firmware, address, MTU, limits: all that tells this port from another one.
  NicFacts facts(const Verbs& verbs, const MachineMap& machine) const;
  // "active", "down": now.
  std::string state_now(const Verbs& verbs) const;
};

struct PortWish {
  std::string device_option;  // "rc_device": what errors tell to set
  std::string device{};       // its value, "mlx5_0" or "mlx5_0:1", or several with commas between, in order; "": any
  int32_t nics = 0;           // ports of a rank; 0: as many as are near and no other rank needs
  MachineMap machine{};
  // Of an active port: chooses its gid and returns what is in the way, "" when it can be used.
  std::function<std::string(Port&)> judge{};
};

// Every port of every device that can be opened, with what is wrong with it. Throws Error(unavailable) where devices
// cannot be listed at all.
std::vector<Port> list_ports(const Verbs& verbs, const PortWish& wish);

// Which of `ports` each rank of the host takes, in the order of context.host_ranks, among those that can be used. Where
// wish.device names some it takes those, in the order of the names, and each has to be there; else ports of less than the
// highest rate are left to others, and all are of one kind of network. Where host_ranks says where the ranks are, ports are dealt out by nearness; where it is empty there is
// one share, that of context.local, which takes its turn: one port unless wish.nics says more.
// Throws Error(unavailable) with every port and what is wrong with it, Error(invalid_argument) for more than there are.
std::vector<std::vector<size_t>> share_out_ports(const std::vector<Port>& ports, const PortWish& wish,
                                                 const TransportContext& context);

// Those of this rank, with who else uses their devices. Throws as list_ports() and share_out_ports() do.
std::vector<Port> open_ports(const Verbs& verbs, const PortWish& wish, const TransportContext& context);
// The first of them.
Port open_port(const Verbs& verbs, const PortWish& wish, const TransportContext& context);

// A transport over all those ports, each with what `make` makes of it.
std::unique_ptr<Transport> make_on_ports(const Verbs& verbs, const PortWish& wish, const TransportContext& context,
                                         const std::function<std::unique_ptr<Transport>(Port)>& make);

struct PortNeed {
  const char* what;
  uint64_t needed = 0;  // of all users of the device together, where they share it
  int64_t most = 0;     // 0: the device does not say
  const char* advice;
};
// "too few queue pairs": throws Error(resource) where more is needed than the port's device has. `counts` says what the
// numbers are made of, beside peers.
void check_port_needs(const Port& port, const std::vector<PortNeed>& needs, const std::string& counts,
                      const std::string& where);
// Of what every transport needs: memory regions for the pieces of its arena and its own, a protection domain.
std::vector<PortNeed> common_needs(const Port& port, size_t arena_pieces);

}  // namespace tilewire::verbs

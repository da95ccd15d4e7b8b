// The EFA device that a rank sends through, and what has to be there for a session on it.
#pragma once

#include <string>
#include <vector>

#include "transport/srd/srd_options.h"
#include "transport/verbs/port.h"
#include "transport/verbs/table.h"

namespace tilewire {

// The functions of both libraries; they are constant and outlive what uses them.
struct SrdLibraries {
  const verbs::Verbs* verbs = nullptr;
  const verbs::Efa* efa = nullptr;
};

// Throws Error(unavailable) as load_verbs() and load_efa() do, and where libibverbs is too old for EFA.
SrdLibraries load_srd_libraries(const SrdOptions& options);

struct SrdPort {
  verbs::Port port;
  verbs::abi::EfaDeviceAttr efa{};

  bool has(verbs::abi::EfaDeviceCaps cap) const { return (efa.device_caps & cap) != 0; }
};

verbs::PortWish srd_port_wish(const SrdLibraries& libraries, const SrdOptions& options);
// A port of that wish.
SrdPort srd_port_of(const SrdLibraries& libraries, verbs::Port port);

// "" when there is a port that can be used, else why not.
std::string why_no_srd_port(const SrdOptions& options);

// How much of a device a rank takes.
struct SrdNeeds {
  bool is_unsolicited = false;
  uint32_t queues = 0;           // queue pairs: one a channel, and one for reports of taken immediates
  uint32_t credits = 0;          // immediates of a peer that may wait at a queue pair
  uint32_t send_entries = 0;     // of a channel's queue pair
  uint32_t receive_entries = 0;  // of a channel's queue pair; where immediates take none only its completion queue's
  uint32_t report_send_entries = 0;  // of the queue pair for reports
  uint32_t report_receive_entries = 0;
};

// Known before anything is made; of what ranks share it is counted for all on the device. Throws Error(resource) with what is needed and what the device has, and
// Error(unavailable) where it cannot do what an option asks for.
SrdNeeds srd_needs(const SrdPort& port, const SrdOptions& options, const TransportContext& context,
                   const std::string& where);

}  // namespace tilewire

// AWS EFA: scalable reliable datagrams, between ranks of different hosts (or of one, for tests).
#pragma once

#include <memory>

#include "transport/srd/srd_port.h"
#include "transport/transport.h"

namespace tilewire {

// Over all ports of this rank. Throws Error(unavailable) when no port can be used, Error(resource) when a device has not
// enough queues, entries or memory for what is asked: the counts and limits are in the text.
std::unique_ptr<Transport> make_srd_transport(const TransportContext& context, const SrdOptions& options,
                                              const SrdLibraries& libraries);
// Over one port, by itself.
std::unique_ptr<Transport> make_srd_port_transport(const TransportContext& context, const SrdOptions& options,
                                                   const SrdLibraries& libraries, verbs::Port port);

}  // namespace tilewire

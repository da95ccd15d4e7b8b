// InfiniBand and RoCE: reliable connections of libibverbs between ranks of different hosts (or of one, for tests).
#pragma once

#include <memory>

#include "transport/rc/rc_options.h"
#include "transport/transport.h"
#include "transport/verbs/port.h"

namespace tilewire {

// Over all ports of this rank. Throws Error(unavailable) when no port can be used, Error(resource) when a device has not
// enough queues, entries or memory for what is asked: the counts and limits are in the text.
std::unique_ptr<Transport> make_rc_transport(const TransportContext& context, const RcOptions& options,
                                             const verbs::Verbs& verbs);
// Over one port, by itself.
std::unique_ptr<Transport> make_rc_port_transport(const TransportContext& context, const RcOptions& options,
                                                  const verbs::Verbs& verbs, verbs::Port port);

}  // namespace tilewire

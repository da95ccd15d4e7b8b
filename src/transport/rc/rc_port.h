// Which ports the RC transport can use, and how it names its end of a path.
#pragma once

#include <string>

#include "transport/rc/rc_options.h"
#include "transport/verbs/port.h"

namespace tilewire {

verbs::PortWish rc_port_wish(const RcOptions& options);

// The longest packets that a rank sends and takes there: the port's, or less where rc_mtu says so.
verbs::abi::Mtu own_mtu(const verbs::Port& port, const RcOptions& options);

// "" when there is a port that can be used, else why not.
std::string why_no_rc_port(const RcOptions& options);

}  // namespace tilewire

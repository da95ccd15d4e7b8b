// A transport that does what it wraps does, and goes wrong as a script says. With an empty script it changes nothing.
// It counts what it did (Transport::faults_come), so that a test can tell a fault that was survived from one that never
// came.
#pragma once

#include <memory>
#include <string_view>

#include "transport/transport.h"

namespace tilewire {

// Throws as parse_fault_script() does.
std::unique_ptr<Transport> make_fault_transport(std::unique_ptr<Transport> inner, std::string_view script);

}  // namespace tilewire

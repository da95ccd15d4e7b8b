// One machine as several nodes: data moves into the arena of a peer, by an ArenaWriter, on the proxy thread, at the times
// that a LinkModel gives. For ranks that are processes of one host or threads of one process.
//
// A signal that lands rings the bell of the rank it is for: it is the same machine.
#pragma once

#include <memory>

#include "transport/emulated/emulated_options.h"
#include "transport/transport.h"

namespace tilewire {

// Throws Error(invalid_argument) when the context names no way to the peers' arenas, Error(resource) for memory.
std::unique_ptr<Transport> make_emulated_transport(const TransportContext& context, const EmulatedOptions& options);

}  // namespace tilewire

// The list of all transports. Adding one is one more entry in registry.cc.
//
// Thread-safety: all functions from any thread.
#pragma once

#include <tilewire/options.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace tilewire {

struct TransportKind {
  std::string_view name;
  std::string_view purpose;  // what it is for, one line
  bool joins_hosts = false;  // ranks of several hosts; else of one alone
  // "" when it can be used here; else why not.
  std::string (*why_unavailable)(const Options& options);
  std::unique_ptr<Transport> (*make)(const TransportContext& context, const Options& options);
};

// In the order in which "auto" prefers them.
std::span<const TransportKind> transport_kinds();

// The entry that options.transport asks for; "auto" takes the first that is available. Throws Error(unavailable) that
// lists what is there when there is no such transport, or it cannot be used here and why.
const TransportKind& choose_transport(const Options& options);

// Throws Error(unavailable) where there is no transport of the name that options.transport has, or "auto"; for a job of
// one node, which needs none.
void check_transport_name(const Options& options);

// Whether options.transport names one that joins hosts: what somebody who has network cards asks for.
bool asks_for_network_cards(const Options& options);

// A transport of that kind, inside the fault transport when options.fault is set. Throws as the transport does, and
// Error(invalid_argument) for a bad fault script.
std::unique_ptr<Transport> make_transport(const TransportKind& kind, const Options& options,
                                          const TransportContext& context);
// The same of the one that choose_transport() takes.
std::unique_ptr<Transport> make_transport(const Options& options, const TransportContext& context);

}  // namespace tilewire

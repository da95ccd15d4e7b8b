// How a rank reaches those of other nodes: a transport, a proxy, the rings in front of it, and where arrivals go. A
// session has one where there are several nodes.
#pragma once

#include <tilewire/options.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "executor/gpu_rank.h"
#include "memory/arena.h"
#include "memory/wait.h"
#include "schedule/topology.h"
#include "transport/arrival_sink.h"
#include "transport/bootstrap/control.h"
#include "transport/command_queue.h"
#include "transport/emulated/local_reach.h"
#include "transport/proxy.h"
#include "transport/registry.h"
#include "transport/transport.h"

namespace tilewire {

class NicAccess;
class RelayRing;

// The rank that is joined; all of it outlives the network.
struct NetworkSite {
  const Options& options;
  ControlConnection& control;
  Arena& arena;
  Topology topology;
  GpuRank* gpu = nullptr;  // of a GPU rank
  bool has_wire = false;   // a process that plays the network between nodes that share a GPU
};

// Thread-safety: the session's.
class SessionNetwork {
 public:
  explicit SessionNetwork(const NetworkSite& site);
  ~SessionNetwork();
  SessionNetwork(const SessionNetwork&) = delete;
  SessionNetwork& operator=(const SessionNetwork&) = delete;

  // Collective: all ranks choose a transport and are connected by it when this returns. `reach` is for one that plays a
  // network on this machine. Throws Error(invalid_argument, unavailable, resource) as transports do, and what the control
  // connection throws; what was made by then stays until the end of this, so that peers hear of the error first.
  void join(LocalReach reach);
  // Before the first call, `first_epoch`.
  void start_proxy(Epoch first_epoch);
  // After the arena has grown. Throws Error(resource); what is missing then stays new.
  void register_new_ranges();
  bool has_new_ranges() const;

  // nullptr before join() and start_proxy().
  Transport* transport() { return transport_.get(); }
  const Transport* transport() const { return transport_.get(); }
  const Proxy* proxy() const { return proxy_.get(); }
  CommandProducer& ring(Ring r) { return producers_[static_cast<size_t>(r)]; }
  // nullptr where the proxy publishes arrivals itself.
  RelayRing* relay_ring() { return relay_ring_.get(); }

  // Nothing is sent any more, and nothing is registered. Idempotent.
  void stop() noexcept;

 private:
  Rank me() const { return Rank{x_.control.rank()}; }
  // Where each rank sits is a by-product.
  const TransportKind& choose_transport(std::vector<RankPlace>& places, SteadyTime deadline) const;
  TransportContext context(const std::vector<RankPlace>& places, LocalReach reach) const;

  NetworkSite x_;
  std::shared_ptr<const NicAccess> nic_access_;  // of GPU memory that a network writes into
  size_t registered_ranges_ = 0;
  std::unique_ptr<Transport> transport_;
  std::vector<CommandRing> rings_;
  std::vector<CommandProducer> producers_;
  std::unique_ptr<WordSink> word_sink_;
  std::unique_ptr<RelayRing> relay_ring_;
  std::unique_ptr<Proxy> proxy_;
};

}  // namespace tilewire

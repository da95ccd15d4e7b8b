// One transport for all ranks: each says what it can use, and all decide alike from what all have said.
//
// Thread-safety: all functions from any thread.
#pragma once

#include <tilewire/options.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "transport/bootstrap/byte_codec.h"
#include "transport/registry.h"

namespace tilewire {

// Where the ranks are, the same for all of them.
struct TransportPlace {
  size_t hosts = 1;
  bool has_gpu_ranks = false;
  bool has_wire = false;       // a process that plays the network between GPU ranks of one host
  std::string gpu_obstacle{};  // why network cards cannot reach this rank's GPU memory
};

// Why this rank cannot use each of transport_kinds(), "" where it can. Of kinds that options.transport rules out nothing
// is tried.
std::vector<std::string> transport_obstacles(const Options& options, const TransportPlace& place);

// What a rank tells all others before they choose.
struct TransportView {
  std::vector<std::string> obstacles{};  // of transport_obstacles()
  RankPlace place{};

  Bytes pack() const;
  static TransportView unpack(std::span<const std::byte> bytes);
};

// Of the obstacles of all ranks, by rank: the transport that options.transport names, or for "auto" the first that every
// rank can use. Throws Error(unavailable) with each kind, the ranks that cannot use it and the reason of the first.
const TransportKind& agree_on_transport(const Options& options, const std::vector<std::vector<std::string>>& by_rank);

}  // namespace tilewire

// Several NICs of a rank as one transport: whole requests are dealt over them in turn, chunks and signals by turns of their
// own, so that each has as many of either. NIC i of a rank talks to NIC i of its peers. Where ranks have different
// numbers of NICs, all use as many as the rank with fewest, and say so.
//
// A NIC that is full keeps its own requests waiting and nobody else's. One that fails is named in the error.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/transport.h"

namespace tilewire {

struct StripedNic {
  std::unique_ptr<Transport> transport;
  std::string name;               // "mlx5_0:1"
  std::vector<int> processors{};  // near it
  double gbps = 0;                // its rate; 0: unknown
  NicFacts facts{};
};

// `nics` has one at least; more than one must announce their data by immediates, since a word behind its data may take
// another one: Error(invalid_argument).
std::unique_ptr<Transport> make_striped_transport(const TransportContext& context, std::vector<StripedNic> nics);

}  // namespace tilewire

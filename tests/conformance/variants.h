// Every transport that the suite runs: each registered one that is available here, in each personality it has, and
// inside the fault transport with no faults.
#pragma once

#include <string>
#include <vector>

#include "transport/test_network.h"

namespace tilewire {

struct TransportVariant {
  std::string name;  // letters, digits and '_'
  TransportMaker make;
};

std::vector<TransportVariant> transport_variants();

}  // namespace tilewire

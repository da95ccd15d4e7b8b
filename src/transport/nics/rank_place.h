// Where a rank works on its host, as it tells the others: what NICs are near to follows from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tilewire {

struct RankPlace {
  std::string gpu{};  // PCI address of its GPU, "0000:3f:00.0"; empty: it has none
  int32_t numa = -1;  // of a CPU rank whose processors are all on one NUMA node; else -1
  size_t peers = 0;   // ranks of other nodes that it talks to
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

}  // namespace tilewire

// How the receiver learns that a chunk has arrived. Chosen once from what the network can do, the same on all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "transport/transport.h"

namespace tilewire {

enum class ArrivalStrategy : uint8_t {
  ordered,           // the data, then the flag word written behind it on the same ordered path
  counted,           // one write with an immediate; the receiver's proxy hands it to an ArrivalSink
  after_completion,  // the flag word is written once the data's completion is in
};

const char* to_string(ArrivalStrategy strategy);

struct ArrivalChoice {
  ArrivalStrategy strategy;
  std::string reason;  // "rc keeps the order of writes"
};

// Throws Error(unavailable) for a network that can signal in none of the three ways, or that holds no request at all.
ArrivalChoice choose_arrival(const Caps& caps);

}  // namespace tilewire

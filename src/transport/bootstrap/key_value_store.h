// What the rendezvous needs of a launcher's store (torch.distributed's TCPStore and the like).
#pragma once

#include <string>

#include "transport/bootstrap/byte_codec.h"
#include "transport/bootstrap/steady_time.h"

namespace tilewire {

// Keys written by one rank are seen by all. Implementations need not be thread-safe: one rank calls from one thread.
class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;

  virtual void set(const std::string& key, const Bytes& value) = 0;

  // Waits until the key is there. Throws Error(deadline) when it is not by then.
  virtual Bytes get(const std::string& key, SteadyTime deadline) = 0;
};

}  // namespace tilewire

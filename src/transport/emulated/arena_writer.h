// How the emulated transport moves data and values into the arenas of peers, once their time has come: by the processor
// for host memory, by a kernel for GPU memory (wire_writer.h).
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/transport.h"

namespace tilewire {

class ArenaWriter {
 public:
  virtual ~ArenaWriter() = default;
  // Begins to move the data of a request, or its value. False: no room, to be tried again. Those for one peer take
  // effect in the order in which they were begun.
  virtual bool begin(const WriteRequest& request) = 0;
  // How many of all that were begun are in place, in that order.
  virtual uint64_t landed() = 0;
};

// By the processor, at once; a value rings the bell of the rank it is for. Maps the arenas of the context's peers.
// Throws Error(invalid_argument) when the context names no way to one, Error(resource) when it cannot be mapped.
std::unique_ptr<ArenaWriter> make_host_arena_writer(const TransportContext& context, const std::string& where);

}  // namespace tilewire

// The emulated transport's way into arenas in GPU memory: it fills the ring of its rank, and a copy kernel moves the
// data (schedule/wire_ring.h).
#pragma once

#include "schedule/wire_ring.h"
#include "transport/emulated/arena_writer.h"

namespace tilewire {

class WireWriter final : public ArenaWriter {
 public:
  // The ring's memory outlives the writer. Fresh: zeros.
  explicit WireWriter(const WireRing& ring) : ring_(ring) {}

  bool begin(const WriteRequest& request) override;
  uint64_t landed() override;

 private:
  WireRing ring_;
  uint64_t begun_ = 0;
  uint64_t landed_ = 0;
};

}  // namespace tilewire

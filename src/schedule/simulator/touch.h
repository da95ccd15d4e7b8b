// What one piece of work does to memory and which tile it makes: told by an op's model, used by the simulator for its
// checks and for its cost.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "schedule/simulator/shadow_memory.h"

namespace tilewire {

enum class SimArea : uint8_t { half, user };

struct MemoryRange {
  Rank rank;
  SimArea area = SimArea::half;
  int64_t offset_bytes = 0;  // from the start of the half of this call, or of the user area
  int64_t bytes = 0;
};

struct Access {
  enum class Kind : uint8_t { read, write, copy };
  Kind kind = Kind::read;
  MemoryRange from;  // read, copy
  MemoryRange to;    // write, copy
  Content content;
};

class Touch {
 public:
  // Data that must be there while the piece of work is done. The agent itself reads it, which is charged.
  void read(const MemoryRange& from, const Content& expected) {
    need(from, expected);
    charge(from.bytes);
  }
  // As read(), but what reading costs is charged elsewhere: it is part of the flops, or the network reads.
  void need(const MemoryRange& from, const Content& expected) {
    accesses_.push_back({Access::Kind::read, from, {}, expected});
  }
  // Bytes that the agent reads or copies within its rank beside what its accesses say.
  void charge(int64_t bytes) { charged_bytes_ += bytes; }
  // Data that comes into being here: a caller's rows, a record, a result.
  void write(const MemoryRange& to, const Content& content) {
    accesses_.push_back({Access::Kind::write, {}, to, content});
  }
  // What lies in `from`, which must be `expected`, goes to `to` (same length).
  void copy(const MemoryRange& from, const MemoryRange& to, const Content& expected) {
    accesses_.push_back({Access::Kind::copy, from, to, expected});
  }
  // The piece of work makes this tile of its rank, at this cost. Tiles are numbered 0 .. tiles - 1.
  void tile(int64_t number, double flops) {
    tile_ = number;
    flops_ = flops;
  }

  void clear() {
    accesses_.clear();
    tile_ = -1;
    flops_ = 0;
    charged_bytes_ = 0;
  }
  const std::vector<Access>& accesses() const { return accesses_; }
  int64_t tile() const { return tile_; }
  double flops() const { return flops_; }
  int64_t charged_bytes() const { return charged_bytes_; }

 private:
  std::vector<Access> accesses_;
  int64_t tile_ = -1;
  double flops_ = 0;
  int64_t charged_bytes_ = 0;
};

}  // namespace tilewire

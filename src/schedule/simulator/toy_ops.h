// Two small ops for the simulator's own tests, as scripts that a test may bend: a broadcast along a ring of ranks, and
// a producer that fills a window of slots for a consumer that gives credits back.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "schedule/simulator/call_model.h"
#include "schedule/simulator/sim_program.h"

namespace tilewire {

struct ScriptPiece {
  std::vector<Need> needs{};
  std::vector<Publish> publishes{};
  std::optional<Command> command{};
  std::vector<Access> accesses{};
  int64_t tile = -1;
};
using Script = std::vector<ScriptPiece>;

struct ScriptWork : WorkBase {
  const ScriptPiece* piece = nullptr;
};

class ScriptRole {
 public:
  using Work = ScriptWork;
  explicit ScriptRole(const Script* script) : script_(script) {}

  bool next(Work& w) {
    if (at_ == script_->size()) return false;
    w.piece = &(*script_)[at_++];
    w.needs = static_cast<int32_t>(w.piece->needs.size());
    w.publishes = static_cast<int32_t>(w.piece->publishes.size());
    return true;
  }
  Need need(const Work& w, int32_t i) const { return w.piece->needs[static_cast<size_t>(i)]; }
  Publish publish(const Work& w, int32_t i) const { return w.piece->publishes[static_cast<size_t>(i)]; }

 private:
  const Script* script_;
  size_t at_ = 0;
};

struct ScriptModel {
  using Role = ScriptRole;
  const Script* script = nullptr;

  Role start() const { return Role(script); }
  const Command* command(const ScriptWork& w) const { return w.piece->command ? &*w.piece->command : nullptr; }
  void touch(const ScriptWork& w, Touch& t) const;
};

struct RingShape {
  int32_t root = 0;
  int32_t chunks = 2;
  int64_t chunk_bytes = 64;
  int32_t read_every = 1;  // compute reads every so-many-th chunk only
  Cursors cursors{};
};

struct WindowShape {
  int32_t producer = 0;
  int32_t consumer = 1;
  int32_t chunks = 4;
  int32_t slots = 2;   // in the consumer's half
  int32_t window = 2;  // chunks that the producer sends ahead of credits; right when it is `slots`
  int32_t span = 1;    // chunks that one tile of the consumer needs together
  int64_t chunk_bytes = 64;
  bool is_reversed = false;  // the producer's order is not the consumer's
  Cursors cursors{};
};

// A program and the scripts behind it.
class Toy {
 public:
  Toy(const std::vector<int32_t>& ranks_per_node, Epoch first_epoch = 2, int64_t half_bytes = 16384);

  // Each appends a call. Data goes from `root` to root + 1 and so on; a hop to another node must be to a rail partner.
  SimCall& add_ring_broadcast(const RingShape& shape);
  SimCall& add_window(const WindowShape& shape);

  // Where things of a call lie, and the word that says so.
  MemoryRange slot(Rank rank, int64_t slot, int64_t bytes) const;
  uint32_t word(int32_t family, int32_t source, int32_t chunk) const;

  SimProgram program;

 private:
  CallFrame frame(Rank me) const;
  Script* new_script() { return &scripts_.emplace_back(); }
  ScriptPiece hand_over(Rank from, Rank to, const Access& copy, uint32_t word) const;
  void end_ring(Rank me, Script* script) const;
  void add_ring_rank(SimCall& call, const RingShape& shape, Rank me);
  void add_window_rank(SimCall& call, const WindowShape& shape, Rank me);

  std::deque<Script> scripts_;
};

}  // namespace tilewire

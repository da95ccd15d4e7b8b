// The memory of one communicator's ranks as the wire process sees it, and what moves data in it.
//
// Thread-safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/unique_fd.h"
#include "device/sync/roll_call.h"
#include "memory/arena.h"
#include "schedule/wire_ring.h"
#include "transport/emulated/wire_protocol.h"

namespace tilewire {

class CudaDevice;

// By rank.
struct WireMemory {
  std::vector<std::byte*> arenas;      // as kernels see them
  std::vector<WireRing> rings;         // as the host sees them
  std::vector<WireRing> rings_on_gpu;  // as kernels do
};

// Moves what the rings say, from start() to stop(), and goes on where it left.
class WireEngine {
 public:
  virtual ~WireEngine() = default;
  virtual void start() = 0;
  // Throws Error(internal, deadline) when it has not ended well: then nothing may be unmapped.
  virtual void stop() = 0;
  // Why it does not run though nobody stopped it; "" while all is well.
  virtual std::string trouble() = 0;
};

struct WireTools {
  std::shared_ptr<const CudaDevice> device;
  std::function<std::unique_ptr<WireEngine>(const WireMemory&)> make_engine;
  RollCallKernel roll_call;
};

class WireNet {
 public:
  // For the communicator that `first` is of.
  WireNet(const WireTools& tools, const WireJoin& first);
  // Ends the engine before memory goes; where it does not end all of it is left as it is.
  ~WireNet();
  WireNet(const WireNet&) = delete;
  WireNet& operator=(const WireNet&) = delete;

  bool is_for(const WireJoin& join) const { return join.job == job_; }
  WirePlace place() const;
  // `ring`: the memory file of the rank's ring. Throws Error(mismatch) for a rank that does not fit or is here already,
  // Error(resource) for memory; then nothing has changed.
  void add(const WireJoin& join, const UniqueFd& ring);
  // A piece of the arena of a rank that was added; they are mapped with the last one. The engine stands still
  // meanwhile. Throws Error(mismatch) for what is no new piece.
  void take(Rank rank, const WirePiece& piece, UniqueFd memory);
  // When all ranks are here: the roll-call, if there is one, then the engine starts. Throws Error(mismatch) when they are
  // not, Error(unavailable) when the roll-call fails.
  void start(const WireStart& start, const UniqueFd& page);
  // Of the engine.
  std::string trouble() const { return engine_ && is_running_ ? engine_->trouble() : ""; }

 private:
  struct Member;
  struct Piece {
    ArenaRange range;
    UniqueFd memory;
  };

  Member& member(Rank rank) const;
  void check_piece(const Member& member, ArenaRange range) const;
  void hold_roll_call(const WireStart& start, const UniqueFd& page) const;
  WireMemory memory() const;

  const WireTools& tools_;
  Nonce job_;
  int64_t arena_bytes_;
  std::vector<std::unique_ptr<Member>> members_;  // by rank
  std::unique_ptr<WireEngine> engine_;
  bool is_running_ = false;
};

}  // namespace tilewire

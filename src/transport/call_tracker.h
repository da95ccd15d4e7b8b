// Which calls a proxy is done with. A call is when every ring has shown its call_end and everything taken for it, flags
// and `done` words included, has completed. Calls may overlap (a ring may be a call ahead of another); they finish in
// order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace tilewire {

class CallTracker {
 public:
  // The first call has number `first_epoch`. Throws Error(invalid_argument) for no rings or first_epoch 0.
  CallTracker(size_t rings, Epoch first_epoch);

  // The call that commands of this ring belong to now.
  Epoch epoch(size_t ring) const { return epochs_[ring]; }
  // The newest call that any ring is in.
  Epoch newest() const { return newest_; }
  // The last call that is done with; first_epoch - 1 before the first.
  Epoch sent() const { return sent_; }

  // Work of call `e` begins or ends. `e` must be one that is not done with.
  void open(Epoch e) { ++call(e).open; }
  void close(Epoch e) { --call(e).open; }
  void end_call(size_t ring);

  // Moves sent() on as far as it goes; true when it moved.
  bool advance();

 private:
  struct Call {
    int64_t open = 0;
    size_t rings_ended = 0;
  };

  Call& call(Epoch e);

  std::vector<Epoch> epochs_;
  std::vector<Call> calls_;  // from sent_ + 1 on: few, and no allocation for each
  Epoch sent_;
  Epoch newest_;
};

}  // namespace tilewire

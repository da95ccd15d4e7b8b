// When a request lands and when its completion shows: the timing of the emulated network, without any waiting or
// moving.
//
// A rank has one way out, a token bucket that all its peers share. The draws depend on the seed, the two ranks and the
// number of the request on its way, never on time: the same posts get the same draws.
//
// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "transport/emulated/emulated_options.h"
#include "transport/transport.h"

namespace tilewire {

class LinkModel {
 public:
  using Time = std::chrono::steady_clock::time_point;

  struct Times {
    Time landed;
    Time completed;
  };

  LinkModel(const EmulatedOptions& options, Rank self, int32_t ranks);

  // The times of a request that is posted `now`; calls come in order of posting.
  Times schedule(const WriteRequest& request, Time now);

 private:
  struct Way {
    uint64_t posted = 0;
    Time last_landed{};
    Time last_completed{};
  };

  std::chrono::nanoseconds draw(Rank peer, uint64_t number, uint32_t what, std::chrono::nanoseconds below) const;
  // When the last byte has left.
  Time leave(uint64_t bytes, Time now);

  EmulatedOptions options_;
  Rank self_;
  bool is_ordered_;
  Time free_at_{};
  std::vector<Way> ways_;  // by peer
};

}  // namespace tilewire

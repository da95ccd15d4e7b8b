// Requests that wait to be posted, by peer and in the order in which they came: one peer that takes none does not hold up
// those to the others. A request is a slot of the request table.
//
// A round offers what waits, batch by batch, until there is nothing more or every peer that has something has refused.
//
// Thread-safety: one thread. Allocates at creation alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilewire {

class PendingRequests {
 public:
  PendingRequests(size_t peers, size_t slots);

  bool is_empty() const { return order_.empty(); }
  void add(size_t peer, uint32_t slot);

  // Who had the first turn last time has the last one now, so that what room there is goes round.
  void begin_round();
  // Slots of this round's next requests, those of a peer behind each other; how many. None: the round is over.
  size_t next(std::span<uint32_t> slots) const;
  // The first `count` of what next() gave have been posted.
  void posted(size_t count);
  // The one behind those was refused: what its peer has waits for another round.
  void refuse();

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct List {
    uint32_t head = kNone;
    uint32_t tail = kNone;
  };

  std::vector<List> lists_;      // by peer
  std::vector<uint32_t> next_;   // by slot
  std::vector<uint32_t> order_;  // peers that have something; the last `refused_` of them have refused in this round
  size_t refused_ = 0;
};

}  // namespace tilewire

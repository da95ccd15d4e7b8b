// The entries of one send queue: what each request under way is for. A number comes back with the completion, in any
// order.
//
// Thread-safety: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace tilewire {

enum class SrdFlightKind : uint8_t {
  whole,   // one request
  part,    // of a request that needs several: see SrdSplit
  probe,   // of the self-test
  report,  // of taken immediates
};

struct SrdFlight {
  uint64_t id = 0;  // of the request
  Rank peer{};
  SrdFlightKind kind = SrdFlightKind::whole;
  uint32_t split = 0;  // part: its number
};

class SrdFlights {
 public:
  explicit SrdFlights(uint32_t entries) : flights_(entries) {
    for (uint32_t i = entries; i > 0; --i) free_.push_back(i - 1);
  }

  // Entries that are neither taken nor reserved.
  size_t room() const { return free_.size() - reserved_; }
  // There must be room.
  uint32_t take(const SrdFlight& flight) {
    const uint32_t number = free_.back();
    free_.pop_back();
    flights_[number] = {flight, true};
    return number;
  }
  SrdFlight give_back(uint32_t number) {
    free_.push_back(number);
    flights_[number].is_under_way = false;
    return flights_[number].flight;
  }
  // Whether one of that kind is on its way there; looks at all.
  bool has(SrdFlightKind kind, Rank peer) const {
    return std::any_of(flights_.begin(), flights_.end(), [&](const Entry& entry) {
      return entry.is_under_way && entry.flight.kind == kind && entry.flight.peer == peer;
    });
  }
  bool are_any() const { return free_.size() < flights_.size(); }
  // An entry for later.
  void reserve() { ++reserved_; }
  void unreserve() { --reserved_; }

 private:
  struct Entry {
    SrdFlight flight{};
    bool is_under_way = false;
  };

  std::vector<Entry> flights_;
  std::vector<uint32_t> free_;
  size_t reserved_ = 0;
};

}  // namespace tilewire

// What network the emulated transport plays.
#pragma once

#include <tilewire/options.h>

#include <chrono>
#include <cstdint>
#include <string_view>

namespace tilewire {

enum class Personality : uint8_t {
  rc,       // writes to a peer arrive, and complete, in the order in which they were posted; immediates too
  relaxed,  // as rc on a network with adaptive routing: any order, and no immediates
  srd,      // any order, immediates, no value writes; completions late and shuffled
};

const char* to_string(Personality personality);
// "rc", "relaxed" or "srd"; throws Error(invalid_argument) for any other text.
Personality parse_personality(std::string_view text);

// The same on all ranks.
struct EmulatedOptions {
  Personality personality = Personality::rc;
  double bandwidth_bytes_per_s = 0;     // of each rank's way out, shared by all its peers; 0: no limit
  std::chrono::nanoseconds latency{0};  // one way; a completion takes another
  uint64_t seed = 1;                    // same seed, same posts: same draws
  // Upper ends of what is drawn for each request on top of that.
  std::chrono::nanoseconds reorder{std::chrono::microseconds(10)};           // relaxed, srd: until it lands
  std::chrono::nanoseconds completion_delay{std::chrono::microseconds(10)};  // relaxed, srd: until it completes
  std::chrono::nanoseconds control_delay{0};                                 // until a request without data lands
  uint32_t max_outstanding = 256;
  uint32_t receive_entries = 4096;  // a power of two: immediates that wait at a receiver
};

// From emulated_*.
EmulatedOptions emulated_options(const Options& options);

}  // namespace tilewire

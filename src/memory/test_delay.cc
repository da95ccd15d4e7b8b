#include "memory/test_delay.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tilewire {
namespace {

// A 64-bit finaliser: every bit of the input changes about half of the output.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

TestDelay::TestDelay(int64_t max_us, uint64_t seed, Rank rank, int32_t role)
    : max_us_(std::max<int64_t>(max_us, 0)),
      key_(mix(mix(mix(seed) ^ static_cast<uint32_t>(rank.value)) ^ static_cast<uint32_t>(role))) {}

int64_t TestDelay::delay_us(uint64_t step) const {
  return static_cast<int64_t>(mix(key_ ^ step) % (static_cast<uint64_t>(max_us_) + 1));
}

void TestDelay::sleep(uint64_t step) const {
  if (const int64_t us = delay_us(step); us > 0) std::this_thread::sleep_for(std::chrono::microseconds(us));
}

}  // namespace tilewire

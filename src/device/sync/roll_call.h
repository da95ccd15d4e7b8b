// The roll-call of kernels that share a GPU: before the first call every rank, and the wire between them, launches a grid
// as large as its kernels will be, a CTA an SM; all CTAs check in and wait for one another. If all are there at once, the
// SMs suffice for kernels that wait for each other.
#pragma once

#include <cstdint>
#include <functional>

namespace tilewire {

// In memory of the GPU that all who take part have mapped. Zero before the roll-call.
struct RollCallPage {
  static constexpr int32_t kMostParticipants = 128;

  alignas(128) uint64_t present = 0;  // CTAs of all that have checked in
  alignas(128) uint64_t missed = 0;   // CTAs that have given up waiting; from then on nobody checks in
  alignas(128) uint64_t came[kMostParticipants] = {};
};

struct RollCallPart {
  RollCallPage* page = nullptr;
  int32_t participant = 0;
  int32_t ctas = 0;      // of this one; even, since kernels take SMs in pairs
  int32_t expected = 0;  // CTAs of all
  uint64_t timeout_ns = 2'000'000'000;
};

// Launches this one's part on the current GPU and returns when it has ended; the page says how it went. Throws
// Error(deadline) when it does not end, and what CUDA says.
using RollCallKernel = std::function<void(const RollCallPart&)>;

// The real one (roll_call.cu).
void hold_roll_call(const RollCallPart& part);

}  // namespace tilewire

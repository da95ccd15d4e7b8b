// What the GPU tests and benches do alike: skip without a GPU, count what is not true, turn exceptions into a status.
#pragma once

#include <cstdio>
#include <exception>
#include <string>

#include "base/device_test.cuh"

namespace tilewire {

inline int untrue_claims = 0;

inline void expect(bool is_true, const std::string& claim) {
  if (is_true) return;
  ++untrue_claims;
  std::printf("NOT TRUE: %s\n", claim.c_str());
  std::fflush(stdout);
}

// Tells how many claims were not true; the exit status.
inline int verdict_of_claims() {
  std::printf("%d claims are not true\n", untrue_claims);
  return untrue_claims == 0 ? 0 : 1;
}

// `run()` gives the exit status.
template <class Run>
int run_gpu_program(const Run& run) {
  if (!has_gpu()) return kSkipped;
  try {
    return run();
  } catch (const std::exception& e) {
    std::printf("FAILED: %s\n", e.what());
    return 1;
  }
}

}  // namespace tilewire

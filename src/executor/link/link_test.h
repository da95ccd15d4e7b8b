// The link test: what every NIC of every pair of ranks does, and whether messages are whole when they are announced.
#pragma once

#include <cstdint>
#include <string>

#include "device/link/link_series.h"
#include "executor/session.h"

namespace tilewire {

struct LinkTestSettings {
  double seconds = 1;           // of each measure of bandwidth, about
  uint64_t messages = 1000000;  // checked from each rank to each other, over all NICs together

  static constexpr uint64_t kMostMessages = uint64_t{1} << 40;
  // Throws Error(invalid_argument) for settings that no job of those options can have, one of a single rank too.
  void validate(const Options& options) const;
};

struct LinkTestResult {
  std::string json{};  // the same on all ranks
  uint64_t wrong = 0;  // messages that were not whole
};

// Collective among all ranks of `setup`, each of which counts as a node. First all NICs of the ranks together, then each
// by itself. `make_kernel`: what GPU ranks run. Throws as validate() and Session::create() do, Error(mismatch) on all ranks where
// their settings differ, and what ends a session.
LinkTestResult run_link_test(const SessionSetup& setup, const LinkTestSettings& settings,
                             const LinkKernelMaker& make_kernel = {});

}  // namespace tilewire

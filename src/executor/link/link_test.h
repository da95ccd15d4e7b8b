// The link test: what every NIC of every pair of ranks does, and whether messages are whole when they are announced.
#pragma once

#include <string>

#include "executor/session.h"

namespace tilewire {

struct LinkTestSettings {
  double seconds = 1;           // of each measure of bandwidth, about
  uint64_t messages = 1000000;  // checked from each rank to each other, over all NICs together
};

// Collective among all ranks of `setup`, each of which counts as a node. First all NICs of the ranks together, then each
// by itself. Gives the report as JSON, the same on all ranks. Throws as Session::create() does, and what ends a session.
std::string run_link_test(const SessionSetup& setup, const LinkTestSettings& settings);

}  // namespace tilewire

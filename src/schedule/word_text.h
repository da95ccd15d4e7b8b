// The name of a flag word, for errors and dumps. Host only.
#pragma once

#include <cstdint>
#include <string>

#include "schedule/arena_layout.h"

namespace tilewire {

// "shard_arrived of chunk 3 of rank 2 (word 77)". `family_names` has kWordFamilies entries; nullptr where a family has
// no name in this op.
std::string word_text(const FlagLayout& flags, uint32_t word, const char* const* family_names);

}  // namespace tilewire

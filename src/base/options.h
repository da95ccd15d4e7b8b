// What the library needs of Options beyond the public struct: the process environment (this file's .cc is the only
// place that reads it) and the comparison between ranks.
#pragma once

#include <tilewire/options.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewire {

// A copy of all variables of this process.
Environment process_environment();

// What differs between two agreement texts: "arena_reserve_bytes is 64GiB here and 32GiB there", joined by "; ", or ""
// when they agree. Takes any text (it may come from another version), never throws on a malformed one.
std::string agreement_difference(std::string_view here, std::string_view there);

// "3,1" -> {3, 1}. Empty text gives no counts. Throws Error(invalid_argument) unless every count is in 1..1048576.
std::vector<int32_t> parse_counts(std::string_view text);

// The name in `known` that takes the fewest single-letter edits from `name`; "" when each takes more than three, or
// more than half of its letters.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace tilewire

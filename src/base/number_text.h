// Numbers to and from text without locales, exceptions or partial matches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tilewire {

// The whole of `text` as a decimal number, or nothing: no spaces, no plus sign, no leftovers, no overflow.
std::optional<int64_t> parse_integer(std::string_view text);
// As above; infinities and NaN give nothing.
std::optional<double> parse_real(std::string_view text);
// A number of bytes with an optional unit: "4096", "64KiB", "3MiB", "1GiB", "1TiB". Overflow gives nothing.
std::optional<int64_t> parse_bytes(std::string_view text);

// The shortest text that parse_bytes reads back exactly: 65536 -> "64KiB", 1000 -> "1000".
std::string bytes_text(int64_t bytes);

// For people, in the unit that fits, rounded to four digits: 0.1532391 s -> "153.2 ms", 4198400 -> "4.004 MiB".
std::string duration_text(double seconds);
std::string rounded_bytes_text(int64_t bytes);

}  // namespace tilewire

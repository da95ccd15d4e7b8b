#include "base/number_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace tilewire {
namespace {

struct Unit {
  std::string_view name;
  int shift;
};
constexpr std::array<Unit, 4> kUnits{{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};

struct TimeUnit {
  double seconds;
  std::string_view name;
};
constexpr std::array<TimeUnit, 3> kTimeUnits{{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}}};

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) { return parse_whole<int64_t>(text); }

std::optional<double> parse_real(std::string_view text) {
  const auto value = parse_whole<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    const auto count = parse_integer(text.substr(0, text.size() - unit.name.size()));
    int64_t bytes = 0;
    if (!count || __builtin_mul_overflow(*count, int64_t{1} << unit.shift, &bytes)) return std::nullopt;
    return bytes;
  }
  return parse_integer(text);
}

std::string bytes_text(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    const int64_t size = int64_t{1} << unit.shift;
    if (bytes != 0 && bytes % size == 0) return fmt::format("{}{}", bytes / size, unit.name);
  }
  return fmt::format("{}", bytes);
}

std::string duration_text(double seconds) {
  for (const auto& [size, unit] : kTimeUnits) {
    // What rounds up to a whole larger unit is told in that one.
    if (std::abs(seconds) >= size * 0.99995) return fmt::format("{:.4g} {}", seconds / size, unit);
  }
  return fmt::format("{:.4g} ns", seconds * 1e9);
}

std::string rounded_bytes_text(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    const double size = std::ldexp(1.0, unit.shift);
    if (std::abs(static_cast<double>(bytes)) >= size) {
      return fmt::format("{:.4g} {}", static_cast<double>(bytes) / size, unit.name);
    }
  }
  return fmt::format("{} B", bytes);
}

}  // namespace tilewire

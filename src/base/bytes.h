// 64-bit byte math. Sizes and offsets are int64_t everywhere, so that a wrong sign shows and no product wraps at 2^32.
// What throws runs on the host only; the rest runs on the GPU too.
#pragma once

#include "base/ids.h"

#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

namespace tilewire {

// Smallest q with q * divisor >= value. Needs value >= 0, divisor > 0; cannot overflow.
TILEWIRE_HD constexpr int64_t div_up(int64_t value, int64_t divisor) {
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

// Smallest multiple of `multiple` that is >= value. Needs value >= 0, multiple > 0 and a result that fits.
TILEWIRE_HD constexpr int64_t round_up(int64_t value, int64_t multiple) { return div_up(value, multiple) * multiple; }

// Largest multiple of `multiple` that is <= value. Needs value >= 0, multiple > 0.
TILEWIRE_HD constexpr int64_t round_down(int64_t value, int64_t multiple) { return value - value % multiple; }

TILEWIRE_HD constexpr bool is_power_of_two(int64_t value) { return value > 0 && (value & (value - 1)) == 0; }

// They throw the errors of the functions below; out of line so that this header stays light.
[[noreturn]] void throw_overflow(const char* operation, int64_t a, int64_t b);
[[noreturn]] void throw_narrow(int64_t value, int64_t low, uint64_t high);
[[noreturn]] void throw_narrow(uint64_t value, int64_t low, uint64_t high);

// The exact product, or Error(resource): a size that does not fit 64 bits.
constexpr int64_t checked_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) throw_overflow("*", a, b);
  return product;
}

// The exact sum, or Error(resource).
constexpr int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) throw_overflow("+", a, b);
  return sum;
}

// As round_up, or Error(resource) when the result does not fit.
constexpr int64_t checked_round_up(int64_t value, int64_t multiple) {
  return checked_mul(div_up(value, multiple), multiple);
}

// `value` as another integer type, or Error(invalid_argument) with value and range when it does not fit.
template <std::integral To, std::integral From>
constexpr To narrow(From value) {
  if (!std::in_range<To>(value)) {
    using Wide = std::conditional_t<std::is_signed_v<From>, int64_t, uint64_t>;
    throw_narrow(static_cast<Wide>(value), static_cast<int64_t>(std::numeric_limits<To>::min()),
                 static_cast<uint64_t>(std::numeric_limits<To>::max()));
  }
  return static_cast<To>(value);
}

}  // namespace tilewire

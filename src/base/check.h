// Checks that print their operands:
//   TILEWIRE_CHECK_EQ(k % 8, 0, "k = {}", k)  ->  k % 8 = 4, must be 0 (k = 1028) [gemm.cc:12] <internal>
//
// The binary forms _EQ, _NE, _LT, _LE, _GT, _GE evaluate each operand once, compare integers by value whatever their
// signs, and take an optional fmt message. All throw Error(internal) unless an ErrorKind comes first:
//   TILEWIRE_CHECK_LE(bytes, limit, ErrorKind::resource, "arena of rank {}", rank)
//   TILEWIRE_CHECK(queue.empty(), ErrorKind::internal, "the queue of channel {} holds work", channel)
// Host only: not for code that the GPU compiles.
#pragma once

#include "base/ids_format.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#define TILEWIRE_CHECK(condition, kind, ...)                                                         \
  do {                                                                                               \
    if (!(condition)) [[unlikely]] {                                                                 \
      ::tilewire::check_detail::fail_condition(#condition, __FILE__, __LINE__, (kind), __VA_ARGS__); \
    }                                                                                                \
  } while (false)

#define TILEWIRE_CHECK_EQ(a, b, ...) TILEWIRE_CHECK_BINARY(Eq, a, b __VA_OPT__(, ) __VA_ARGS__)
#define TILEWIRE_CHECK_NE(a, b, ...) TILEWIRE_CHECK_BINARY(Ne, a, b __VA_OPT__(, ) __VA_ARGS__)
#define TILEWIRE_CHECK_LT(a, b, ...) TILEWIRE_CHECK_BINARY(Lt, a, b __VA_OPT__(, ) __VA_ARGS__)
#define TILEWIRE_CHECK_LE(a, b, ...) TILEWIRE_CHECK_BINARY(Le, a, b __VA_OPT__(, ) __VA_ARGS__)
#define TILEWIRE_CHECK_GT(a, b, ...) TILEWIRE_CHECK_BINARY(Gt, a, b __VA_OPT__(, ) __VA_ARGS__)
#define TILEWIRE_CHECK_GE(a, b, ...) TILEWIRE_CHECK_BINARY(Ge, a, b __VA_OPT__(, ) __VA_ARGS__)

// For a place that no control flow may reach.
#define TILEWIRE_UNREACHABLE(...) \
  ::tilewire::check_detail::fail_condition("", __FILE__, __LINE__, ::tilewire::ErrorKind::internal, __VA_ARGS__)

#define TILEWIRE_CHECK_BINARY(relation, a, b, ...)                                                                   \
  do {                                                                                                               \
    auto&& tilewire_check_a = (a);                                                                                   \
    auto&& tilewire_check_b = (b);                                                                                   \
    if (!::tilewire::check_detail::relation::holds(tilewire_check_a, tilewire_check_b)) [[unlikely]] {               \
      ::tilewire::check_detail::fail_binary({#a, #b, ::tilewire::check_detail::relation::kText, __FILE__, __LINE__}, \
                                            ::tilewire::check_detail::operand_text(tilewire_check_a),                \
                                            ::tilewire::check_detail::operand_text(tilewire_check_b) __VA_OPT__(, )  \
                                                __VA_ARGS__);                                                        \
    }                                                                                                                \
  } while (false)

namespace tilewire::check_detail {

template <class T>
inline constexpr bool kIsNumber = std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>;

#define TILEWIRE_CHECK_RELATION(name, integer_compare, op, text) \
  struct name {                                                  \
    static constexpr const char* kText = text;                   \
    template <class A, class B>                                  \
    static constexpr bool holds(const A& a, const B& b) {        \
      if constexpr (kIsNumber<A> && kIsNumber<B>) {              \
        return std::integer_compare(a, b);                       \
      } else {                                                   \
        return a op b;                                           \
      }                                                          \
    }                                                            \
  };
TILEWIRE_CHECK_RELATION(Eq, cmp_equal, ==, "")
TILEWIRE_CHECK_RELATION(Ne, cmp_not_equal, !=, "other than ")
TILEWIRE_CHECK_RELATION(Lt, cmp_less, <, "less than ")
TILEWIRE_CHECK_RELATION(Le, cmp_less_equal, <=, "at most ")
TILEWIRE_CHECK_RELATION(Gt, cmp_greater, >, "more than ")
TILEWIRE_CHECK_RELATION(Ge, cmp_greater_equal, >=, "at least ")
#undef TILEWIRE_CHECK_RELATION

template <class T>
std::string operand_text(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return fmt::format("{}", static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_same_v<T, std::nullptr_t>) {
    return "nullptr";
  } else if constexpr (std::is_pointer_v<T> && !std::is_convertible_v<T, std::string_view>) {
    return fmt::format("{}", static_cast<const void*>(value));
  } else {
    return fmt::format("{}", value);
  }
}

struct Place {
  const char* a;
  const char* b;
  const char* relation;
  const char* file;
  int line;
};

[[noreturn]] void raise_binary(const Place& place, ErrorKind kind, const std::string& a, const std::string& b,
                               const std::string& message);
[[noreturn]] void raise_condition(const Place& place, ErrorKind kind, const std::string& message);

[[noreturn]] inline void fail_binary(const Place& place, const std::string& a, const std::string& b,
                                     ErrorKind kind = ErrorKind::internal) {
  raise_binary(place, kind, a, b, "");
}

template <class... Args>
[[noreturn]] void fail_binary(const Place& place, const std::string& a, const std::string& b, ErrorKind kind,
                              fmt::format_string<Args...> format, Args&&... args) {
  raise_binary(place, kind, a, b, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_binary(const Place& place, const std::string& a, const std::string& b,
                              fmt::format_string<Args...> format, Args&&... args) {
  raise_binary(place, ErrorKind::internal, a, b, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_condition(const char* condition, const char* file, int line, ErrorKind kind,
                                 fmt::format_string<Args...> format, Args&&... args) {
  raise_condition({condition, "", "", file, line}, kind, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tilewire::check_detail

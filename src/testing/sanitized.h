// For tests that go through much of one kind: a sanitizer, which makes each step many times slower, sees in a part of it
// what it is there to see; the whole is for the build without one.
#pragma once

#include <cstddef>
#include <vector>

namespace tilewire {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

// All of them; under a sanitizer every second one, the first and the last among them.
template <class T>
std::vector<T> part_if_sanitized(const std::vector<T>& all) {
  if (!kIsSanitized || all.empty()) return all;
  std::vector<T> part;
  for (std::size_t i = 0; i + 1 < all.size(); i += 2) part.push_back(all[i]);
  part.push_back(all.back());
  return part;
}

}  // namespace tilewire

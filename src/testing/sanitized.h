// For tests that go through much of one kind: a sanitizer, which makes each step many times slower, sees in a part of it
// what it is there to see; the whole is for the build without one.
#pragma once

namespace tilewire {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace tilewire

// In every program that CMake calls ONE_THREAD, in builds without a sanitizer: it starts no thread indeed. The build with
// ThreadSanitizer leaves these programs out, as there is nothing for it to see.
#include <pthread.h>

#include <cstdio>
#include <cstdlib>

extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t*, const pthread_attr_t*,
                                                                     void* (*)(void*), void*) noexcept {
  std::fputs(
      "a test that CMake calls ONE_THREAD starts a thread, which ThreadSanitizer would never see: take the word away\n",
      stderr);
  std::abort();
}

#include "transport/verbs/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <tilewire/error.h>

namespace tilewire::verbs {

RuntimeLibrary::RuntimeLibrary(const char* title, const std::string& library, const char* advice)
    : title_(title), library_(library), advice_(advice), handle_(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  const char* reason = dlerror();
  throw Error(ErrorKind::unavailable, {.what = fmt::format("{} is not here", title_),
                                       .where = library_,
                                       .values = reason != nullptr ? reason : "unknown reason",
                                       .advice = advice_});
}

void* RuntimeLibrary::address(const char* name) const { return dlsym(handle_, name); }

void RuntimeLibrary::fail_missing(const char* name) const {
  throw Error(ErrorKind::unavailable, {.what = fmt::format("{} is too old, or it is another library", title_),
                                       .where = library_,
                                       .values = fmt::format("it has no function {}", name),
                                       .advice = advice_});
}

}  // namespace tilewire::verbs

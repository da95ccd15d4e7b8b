#include "transport/verbs/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <tilewire/error.h>

#include <filesystem>

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

std::string library_file(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "";
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(info.dli_fname, error);
  return error ? std::string(info.dli_fname) : real.string();
}

}  // namespace tilewire::verbs

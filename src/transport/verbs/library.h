// A C library that is found at run time. Once it is loaded it stays: providers start threads and keep state.
#pragma once

#include <string>

namespace tilewire::verbs {

class RuntimeLibrary {
 public:
  // `title` and `advice` are for errors: "libibverbs", "install libibverbs1". Throws Error(unavailable) with the loader's
  // reason.
  RuntimeLibrary(const char* title, const std::string& library, const char* advice);

  // Null where it has no such function.
  template <class Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(address(name));
  }
  // Throws Error(unavailable) with the function that is missing.
  template <class Function>
  void need(Function& function, const char* name) const {
    find(function, name);
    if (function == nullptr) fail_missing(name);
  }

 private:
  void* address(const char* name) const;
  [[noreturn]] void fail_missing(const char* name) const;

  const char* title_;
  std::string library_;
  const char* advice_;
  void* handle_;
};

// The file that a function of a library was loaded from, links resolved, as its name has the version: "/usr/lib/.../
// libibverbs.so.1.14.44.0". "": unknown.
std::string library_file(const void* function);

}  // namespace tilewire::verbs

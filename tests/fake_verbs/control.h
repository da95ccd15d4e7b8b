// For tests: the fake library, as options name it, and its settings in this process (see settings.h).
#pragma once

#include <dlfcn.h>
#include <tilewire/options.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tilewire {

class FakeVerbs {
 public:
  static const char* library() { return TILEWIRE_FAKE_VERBS; }
  // `options` of a rank that sends through it.
  static Options over(const char* transport, Options options) {
    options.transport = transport;
    options.verbs_library = options.efa_library = library();
    return options;
  }
  static Options options() { return over("srd", {}); }
  // What `text` does not name stays as it is.
  static void set(const std::string& text) {
    const char* problem = function<const char*(const char*)>("fake_verbs_set")(text.c_str());
    if (problem != nullptr) throw std::runtime_error(problem);
  }
  // What is held of a kind ("qp", "cq", "mr", "ah", "pd", "context", "list"), or how often something has come.
  static int64_t count(const char* name) { return function<int64_t(const char*)>("fake_verbs_count")(name); }
  static int64_t held() {
    int64_t all = 0;
    for (const char* kind : {"qp", "cq", "mr", "ah", "pd", "context", "list"}) all += count(kind);
    return all;
  }

 private:
  template <class Signature>
  static Signature* function(const char* name) {
    static void* const handle = dlopen(library(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) throw std::runtime_error(std::string("cannot be loaded: ") + library());
    return reinterpret_cast<Signature*>(dlsym(handle, name));
  }
};

// Settings that hold until this goes. `back` says how they were.
class FakeVerbsSetting {
 public:
  FakeVerbsSetting(const std::string& text, const std::string& back) : back_(back) { FakeVerbs::set(text); }
  ~FakeVerbsSetting() { FakeVerbs::set(back_); }
  FakeVerbsSetting(const FakeVerbsSetting&) = delete;
  FakeVerbsSetting& operator=(const FakeVerbsSetting&) = delete;

 private:
  std::string back_;
};

}  // namespace tilewire

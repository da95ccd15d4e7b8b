// For tests: what a body throws, as its text.
#pragma once

#include <tilewire/error.h>

#include <functional>
#include <string>

namespace tilewire {

// "" when it throws nothing.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace tilewire

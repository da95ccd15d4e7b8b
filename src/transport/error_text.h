// For tests: what an error says.
#pragma once

#include <gtest/gtest.h>
#include <tilewire/error.h>

#include <string>

namespace tilewire {

template <class Function>
Error error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::internal, {.what = "nothing was thrown"});
}

#define EXPECT_SAYS(error, text) EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what()

}  // namespace tilewire

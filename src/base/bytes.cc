#include "base/bytes.h"

#include <fmt/format.h>
#include <tilewire/error.h>

namespace tilewire {
namespace {

template <class T>
[[noreturn]] void refuse_narrow(T value, int64_t low, uint64_t high) {
  throw Error(ErrorKind::invalid_argument, {.what = "a number does not fit its field",
                                            .where = "",
                                            .values = fmt::format("{}", value),
                                            .limit = fmt::format("must be {} to {}", low, high),
                                            .advice = ""});
}

}  // namespace

void throw_overflow(const char* operation, int64_t a, int64_t b) {
  throw Error(ErrorKind::resource, {.what = "a size does not fit 64 bits",
                                    .where = "",
                                    .values = fmt::format("{} {} {}", a, operation, b),
                                    .limit = fmt::format("must be at most {}", INT64_MAX),
                                    .advice = "use smaller shapes"});
}

void throw_narrow(int64_t value, int64_t low, uint64_t high) { refuse_narrow(value, low, high); }
void throw_narrow(uint64_t value, int64_t low, uint64_t high) { refuse_narrow(value, low, high); }

}  // namespace tilewire

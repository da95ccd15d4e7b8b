// soak_test [--minutes=N] [--seed=S] [--rdma] [gtest flags]. Without --minutes: a short run of the same code. --rdma: over
// soft-RoCE, in the guest of tests/rdma. A run in which no soak is chosen is an error, so that a wrong filter does not
// pass for a long test.
#include <gtest/gtest.h>
#include <malloc.h>

#include <charconv>
#include <cstdio>
#include <cstring>

#include "soak/soak_run.h"

namespace tilewire {
namespace {

SoakRun chosen;

template <class Number>
bool read_flag(const char* argument, const char* flag, Number& value) {
  const size_t length = std::strlen(flag);
  if (std::strncmp(argument, flag, length) != 0) return false;
  const char* end = argument + std::strlen(argument);
  const auto [stop, error] = std::from_chars(argument + length, end, value);
  return error == std::errc{} && stop == end && value > 0;
}

bool read_argument(const char* argument) {
  double minutes = 0;
  if (read_flag(argument, "--minutes=", minutes)) {
    chosen.minutes = decltype(chosen.minutes)(minutes);
    chosen.is_long = true;
    return true;
  }
  if (std::strcmp(argument, "--rdma") == 0) return chosen.is_rdma = true;
  return read_flag(argument, "--seed=", chosen.seed);
}

}  // namespace

const SoakRun& soak_run() { return chosen; }

}  // namespace tilewire

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    if (tilewire::read_argument(argv[i])) continue;
    std::fprintf(stderr, "soak_test: bad argument %s; takes --minutes=N and --seed=S, both above 0, and --rdma\n",
                 argv[i]);
    return 2;
  }
  // Few heaps: with one a thread, memory that is free but kept would hide what leaks.
  mallopt(M_ARENA_MAX, 2);
  const int failed = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "soak_test: no soak has that name\n");
    return 2;
  }
  return failed;
}

#include "base/process_generation.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace tilewire {
namespace {

// The exit status of a child that runs `body`.
template <class Body>
int in_child(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Otherwise a child would use what belongs to its parent, or not even what it has made itself.
TEST(ProcessGeneration, AChildHasAnotherOneAndItsChildToo) {
  const uint64_t own = process_generation();
  EXPECT_GT(own, 0u);
  const int differences = in_child([&] {
    const uint64_t child = process_generation();
    if (child == own || child != process_generation()) return 10;
    return in_child([&] { return process_generation() == child || process_generation() == own ? 20 : 3; });
  });
  EXPECT_EQ(differences, 3);
  EXPECT_EQ(process_generation(), own);
}

TEST(ProcessGeneration, ThreadsHaveThatOfTheirProcess) {
  const int status = in_child([] {
    uint64_t seen[8] = {};
    {
      std::vector<std::jthread> threads;
      for (uint64_t& at : seen) threads.emplace_back([&at] { at = process_generation(); });
    }
    for (const uint64_t at : seen) {
      if (at != process_generation()) return 1;
    }
    return 0;
  });
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tilewire

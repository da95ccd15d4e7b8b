// How long the soaks of this program run: a few seconds, or `--minutes=N`.
#pragma once

#include <chrono>
#include <cstdint>

namespace tilewire {

struct SoakRun {
  bool is_long = false;
  std::chrono::duration<double, std::ratio<60>> minutes{0.05};  // of each soak that runs by time
  uint64_t seed = 1;                                            // first of the seeds
  bool is_rdma = false;  // over soft-RoCE, whose guest has an emulated processor: a tenth is as long there

  int64_t of_that_many(int64_t count) const { return is_rdma ? count / 10 : count; }
};

// As the command line says; set before the first test.
const SoakRun& soak_run();

// True until the time of the run is over, and at least `at_least` times.
class SoakClock {
 public:
  explicit SoakClock(int64_t at_least) : left_(at_least) {}
  bool goes_on() { return left_-- > 0 || std::chrono::steady_clock::now() - begin_ < soak_run().minutes; }

 private:
  int64_t left_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tilewire

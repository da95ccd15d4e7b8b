// Benches only: what a row is compared with, and whether it meets its goal.
//
// scripts/run_benches reads the counters `ours`, `baseline`, `ratio` and `meets_goal` and the label of each row; it
// fails when a goal is missed. A goal says what the code does, not what else the machine does: it is judged only where
// as many cores as the row has busy threads were idle, just before the row and just after it.
#pragma once

#include <benchmark/benchmark.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace tilewire {

// What the control group of a container leaves of the machine's cores.
inline double quota_cores() {
  std::ifstream in("/sys/fs/cgroup/cpu.max");
  double quota_us = 0, period_us = 0;
  return in >> quota_us >> period_us && period_us > 0 ? quota_us / period_us : 1e9;  // "max" is no number
}

// Cores that this process may use and that were idle over the next 100 ms, by the kernel's count.
inline double idle_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 0;
  const auto count_ticks = [&](int64_t& idle, int64_t& all) {
    std::ifstream in("/proc/stat");
    idle = all = 0;
    for (std::string line; std::getline(in, line);) {
      int cpu = 0;
      if (std::sscanf(line.c_str(), "cpu%d ", &cpu) != 1 || !CPU_ISSET(static_cast<size_t>(cpu), &allowed)) continue;
      std::istringstream fields(line.substr(line.find(' ')));
      // user nice system idle iowait irq softirq steal
      int64_t ticks = 0;
      for (int field = 0; field < 8 && fields >> ticks; ++field) {
        all += ticks;
        if (field == 3 || field == 4) idle += ticks;
      }
    }
  };
  int64_t idle_before = 0, all_before = 0, idle_after = 0, all_after = 0;
  count_ticks(idle_before, all_before);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  count_ticks(idle_after, all_after);
  const double cores = CPU_COUNT(&allowed);
  if (all_after == all_before) {  // a system that does not count: the load of the last minute instead
    double load = 0;
    return getloadavg(&load, 1) == 1 ? std::clamp(cores - load, 0.0, quota_cores()) : 0;
  }
  const double idle = static_cast<double>(idle_after - idle_before) / static_cast<double>(all_after - all_before);
  return std::min(cores * idle, quota_cores());
}

struct BenchComparison {
  double ours = 0;
  double baseline = 0;  // of the bare mechanism, measured in turns with ours in the same row
  std::string baseline_name{};
  std::string unit{};
  bool is_smaller_better = false;
  std::string goal{};  // in words; "" where there is none
  bool meets_goal = true;
  std::string note{};
};

class BenchRow {
 public:
  // Before the first iteration. `busy_threads`: how many of the row's threads need a core at the same time.
  BenchRow(benchmark::State& state, int busy_threads)
      : state_(state), busy_threads_(busy_threads), idle_cores_(idle_cores()) {}

  // After the last iteration, once all threads of the row have ended.
  void report(const BenchComparison& c) {
    state_.counters["ours"] = c.ours;
    state_.counters["baseline"] = c.baseline;
    state_.counters["ratio"] = c.is_smaller_better ? c.baseline / c.ours : c.ours / c.baseline;
    std::string label = "unit=" + c.unit + "; baseline=" + c.baseline_name;
    if (!c.goal.empty()) label += "; goal=" + c.goal + judge(c.meets_goal);
    if (!c.note.empty()) label += "; note=" + c.note;
    state_.SetLabel(label);
  }

 private:
  std::string judge(bool meets_goal) {
    // A core that is idle nine tenths of the time is a free one.
    const double idle = std::min(idle_cores_, idle_cores());
    if (idle < 0.9 * busy_threads_) {
      char had[32];
      std::snprintf(had, sizeof(had), "%.1f", idle);
      return "; not judged: needs " + std::to_string(busy_threads_) + " free cores, had " + had;
    }
    state_.counters["meets_goal"] = meets_goal ? 1 : 0;
    return "";
  }

  benchmark::State& state_;
  int busy_threads_;
  double idle_cores_;
};

}  // namespace tilewire

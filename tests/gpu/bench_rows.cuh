// Rows of the GPU benches: ours against a baseline measured in turns with it, printed and kept as JSON.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "device/cuda_check.cuh"

namespace tilewire {

inline double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct BenchSize {
  int64_t rows, cols, depth;

  std::string text() const { return std::to_string(rows) + "x" + std::to_string(cols) + "x" + std::to_string(depth); }
};

// Medians over rounds; the ratio is that of (baseline / ours) in a round, `low` and `high` its ends.
struct Comparison {
  double ours_us, baseline_us, ratio, low, high;
};

// How long a block of launches is, and how many there are.
struct Turns {
  int rounds;
  double block_us;
  int least, most;  // launches a block
};

// `time_us(count)` of each: microseconds a launch, `count` of them behind each other. A first round warms up.
template <class TimeBaseline, class TimeOurs>
Comparison compare_in_turns(const Turns& turns, const TimeBaseline& baseline_us, const TimeOurs& ours_us) {
  const double guess_us = (baseline_us(3), baseline_us(5));
  const int count = std::clamp(static_cast<int>(turns.block_us / guess_us), turns.least, turns.most);
  std::vector<double> ours, baseline, ratios;
  for (int round = -1; round < turns.rounds; ++round) {
    const double theirs = baseline_us(count), mine = ours_us(count);
    if (round < 0) continue;
    ours.push_back(mine);
    baseline.push_back(theirs);
    ratios.push_back(theirs / mine);
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {median(ours), median(baseline), median(ratios), *low, *high};
}

struct BenchRow {
  std::string shape, form;
  Comparison found;
};

// What the rows of a file have in common.
struct BenchFile {
  std::string bench, baseline_name;
};

inline void write_json(const std::string& path, const char* commit, const char* date, const BenchFile& file,
                       const std::vector<BenchRow>& rows) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, 0), "asking for the GPU's name");
  std::ofstream out(path);
  out << "{\n  \"commit\": \"" << commit << "\",\n  \"date\": \"" << date << "\",\n  \"machine\": \"1x "
      << properties.name << "\",\n  \"rows\": [\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    const BenchRow& r = rows[i];
    char line[512];
    std::snprintf(line, sizeof(line),
                  "    {\"bench\": \"%s\", \"op\": \"ag_gemm\", \"shape\": \"%s\", \"form\": \"%s\", "
                  "\"ours\": %.2f, \"baseline\": %.2f, \"baseline_name\": \"%s\", \"unit\": \"us\", "
                  "\"ratio\": %.4f, \"ratio_low\": %.4f, \"ratio_high\": %.4f}",
                  file.bench.c_str(), r.shape.c_str(), r.form.c_str(), r.found.ours_us, r.found.baseline_us,
                  file.baseline_name.c_str(), r.found.ratio, r.found.low, r.found.high);
    out << line << (i + 1 < rows.size() ? ",\n" : "\n");
  }
  out << "  ]\n}\n";
}

}  // namespace tilewire

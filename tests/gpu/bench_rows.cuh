// Rows of the GPU benches: ours against a baseline measured in turns with it, printed and kept as JSON.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
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

// Microseconds a launch, `count` of them behind each other.
using TimeUs = std::function<double(int count)>;

// Of each contender its microseconds in each round, one contender after the other in every one. A first round warms up.
inline std::vector<std::vector<double>> time_in_turns(const Turns& turns, const std::vector<TimeUs>& contenders) {
  const double guess_us = (contenders.front()(3), contenders.front()(5));
  const int count = std::clamp(static_cast<int>(turns.block_us / guess_us), turns.least, turns.most);
  std::vector<std::vector<double>> us(contenders.size());
  for (int round = -1; round < turns.rounds; ++round) {
    for (size_t i = 0; i < contenders.size(); ++i) {
      const double took_us = contenders[i](count);
      if (round >= 0) us[i].push_back(took_us);
    }
  }
  return us;
}

// Round by round.
inline Comparison compare(const std::vector<double>& ours_us, const std::vector<double>& baseline_us) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours_us.size(); ++i) ratios.push_back(baseline_us[i] / ours_us[i]);
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {median(ours_us), median(baseline_us), median(ratios), *low, *high};
}

inline Comparison compare_in_turns(const Turns& turns, const TimeUs& baseline_us, const TimeUs& ours_us) {
  const std::vector<std::vector<double>> us = time_in_turns(turns, {baseline_us, ours_us});
  return compare(us[1], us[0]);
}

// A file's rows have its bench and its baseline, but for rows that name their own.
struct BenchFile {
  std::string bench, baseline_name;
  std::string op = "ag_gemm";  // of the file: the name of its folder
};

struct BenchRow {
  std::string shape, form;
  Comparison found;
  BenchFile own = {};
  std::vector<std::pair<std::string, double>> more = {};  // further numbers, by name
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
    const BenchFile& of = r.own.bench.empty() ? file : r.own;
    char line[768];
    std::snprintf(line, sizeof(line),
                  "    {\"bench\": \"%s\", \"op\": \"%s\", \"shape\": \"%s\", \"form\": \"%s\", "
                  "\"ours\": %.2f, \"baseline\": %.2f, \"baseline_name\": \"%s\", \"unit\": \"us\", "
                  "\"ratio\": %.4f, \"ratio_low\": %.4f, \"ratio_high\": %.4f",
                  of.bench.c_str(), file.op.c_str(), r.shape.c_str(), r.form.c_str(), r.found.ours_us,
                  r.found.baseline_us, of.baseline_name.c_str(), r.found.ratio, r.found.low, r.found.high);
    out << line;
    for (const auto& [name, value] : r.more) out << ", \"" << name << "\": " << value;
    out << "}" << (i + 1 < rows.size() ? ",\n" : "\n");
  }
  out << "  ]\n}\n";
}

}  // namespace tilewire

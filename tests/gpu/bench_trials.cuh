// Benches of fused kernels look closer: plans beside each other at points that the command line names, on ranks of one GPU,
// and what roles do in a call. Words: M N K [ranks=2+2] [NAME=VALUE,...]..., where each list of fields of the plan makes
// another one, which has those instead of what the planner chose. Traits as in fused_bench.cuh.
#pragma once

#include "fused_bench.cuh"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace tilewire {

// A point and what plans at it have instead of what the planner chose.
struct Trials {
  BenchSize size;
  std::vector<std::string> changes;
  std::vector<int32_t> widths = {2, 2};  // ranks of each node
};

inline std::vector<Trials> trials_of(int count, char** words) {
  std::vector<Trials> trials;
  for (int i = 0; i < count;) {
    if (const std::string word = words[i]; word.rfind("ranks=", 0) == 0 && !trials.empty()) {
      std::istringstream list(word.substr(6));
      trials.back().widths.clear();
      for (std::string width; std::getline(list, width, '+');) trials.back().widths.push_back(std::stoi(width));
      ++i;
    } else if (std::strchr(words[i], '=') != nullptr && !trials.empty()) {
      trials.back().changes.emplace_back(words[i++]);
    } else if (i + 2 < count) {
      trials.push_back({{std::stoll(words[i]), std::stoll(words[i + 1]), std::stoll(words[i + 2])}, {}, {2, 2}});
      i += 3;
    } else {
      throw std::runtime_error(std::string("no point begins with ") + words[i]);
    }
  }
  return trials;
}

// `changes`: NAME=VALUE,...
template <class Plan>
Plan changed_plan(Plan plan, const std::string& changes) {
  std::istringstream list(changes);
  for (std::string change; std::getline(list, change, ',');) {
    const size_t equals = change.find('=');
    bool is_known = false;
    for_each_field(plan, [&](const char* name, auto& field, const auto&...) {
      if (change.compare(0, equals, name) != 0) return;
      if constexpr (requires { field = 1; }) {
        field = static_cast<std::remove_reference_t<decltype(field)>>(std::stoll(change.substr(equals + 1)));
        is_known = true;
      }
    });
    if (!is_known) throw std::runtime_error("a plan has no number " + change);
  }
  return plan;
}

template <class Traits>
std::vector<typename Traits::Plan> plans_of(const FusedBench<Traits>& bench, const Trials& trials) {
  std::vector<typename Traits::Plan> plans{Traits::make_plan(bench.problem(), bench.context()).choice};
  for (const std::string& changes : trials.changes) {
    plans.push_back(check_plan(changed_plan(plans[0], changes), bench.problem(), bench.context()).choice);
  }
  return plans;
}

template <class Traits>
void print_trials(int count, char** words) {
  const Turns turns{.rounds = 5, .block_us = 5000, .least = 3, .most = 40};
  for (const Trials& trials : trials_of(count, words)) {
    FusedBench<Traits> bench(trials.size, trials.widths);
    const std::vector<typename Traits::Plan> plans = plans_of(bench, trials);
    std::vector<TimeUs> contenders{bench.cublas(), bench.plain()};
    for (const auto& plan : plans) contenders.push_back(bench.fused(plan));
    const std::vector<std::vector<double>> us = time_in_turns(turns, contenders);
    bench.check();
    const double wire_us = trials.widths.size() == 1 ? 0
                                                     : static_cast<double>(Traits::sent_bytes(trials.size, 4)) * 1e6 /
                                                           static_cast<double>(kBenchNetwork.bandwidth_bytes_per_s);
    const double floor_us = std::max(wire_us, std::min(median(us[0]), median(us[1])));
    std::printf("%s: cuBLAS %.1f us, plain kernel %.1f us, wire %.1f us\n", trials.size.text().c_str(), median(us[0]),
                median(us[1]), wire_us);
    for (size_t i = 0; i < plans.size(); ++i) {
      std::printf("  %9.1f us  %.3f of the floor  %s\n", median(us[i + 2]), floor_us / median(us[i + 2]),
                  i == 0 ? plans[0].text().c_str() : trials.changes[i - 1].c_str());
    }
    std::fflush(stdout);
  }
}

// Of each role of the first rank, in microseconds from the first note on: when its first work begins and its last one ends,
// what works wait and take, and how many of a hundred end in each tenth of the whole.
template <class Traits>
void print_timeline(const std::vector<NotedWorks>& ranks) {
  uint64_t first_ns = ~uint64_t{0};
  uint64_t last_ns = 0;
  for (const NotedWork& n : ranks[0].works) {
    first_ns = std::min(first_ns, n.note.t_wait_ns);
    last_ns = std::max(last_ns, n.note.t_end_ns);
  }
  const double last = static_cast<double>(last_ns - first_ns) * 1e-3;
  const auto names = Traits::role_names();
  for (size_t role = 0; role < names.size(); ++role) {
    std::vector<double> waits, works, ends;
    double begin = 1e30, end = 0, bytes = 0;
    for (const NotedWork& n : ranks[0].works) {
      if (n.note.role != role) continue;
      waits.push_back(static_cast<double>(n.note.t_begin_ns - n.note.t_wait_ns) * 1e-3);
      works.push_back(static_cast<double>(n.note.t_end_ns - n.note.t_begin_ns) * 1e-3);
      ends.push_back(static_cast<double>(n.note.t_end_ns - first_ns) * 1e-3);
      begin = std::min(begin, static_cast<double>(n.note.t_begin_ns - first_ns) * 1e-3);
      end = std::max(end, ends.back());
      bytes += n.note.bytes;
    }
    if (works.empty()) continue;
    const auto at = [](std::vector<double>& v, double part) {
      std::sort(v.begin(), v.end());
      return v[static_cast<size_t>(part * static_cast<double>(v.size() - 1))];
    };
    std::printf(
        "  %-8s %6zu works from %8.1f to %8.1f us; wait %7.1f (90 %%: %7.1f), take %7.1f (10 %%: %.1f, 90 %%: %.1f, "
        "most "
        "%.1f), %.1f MB; ends",
        names[role], works.size(), begin, end, at(waits, 0.5), at(waits, 0.9), at(works, 0.5), at(works, 0.1),
        at(works, 0.9), at(works, 1), bytes * 1e-6);
    for (int tenth = 0; tenth < 10; ++tenth) {
      const auto is_in = [&](double t) { return t > last * tenth / 10 && t <= last * (tenth + 1) / 10; };
      std::printf(" %.0f", 100.0 * static_cast<double>(std::count_if(ends.begin(), ends.end(), is_in)) /
                               static_cast<double>(ends.size()));
    }
    std::printf("\n");
  }
}

template <class Traits, class Bench>
void print_timeline_of(Bench& bench, const typename Traits::Plan& plan) {
  std::printf("%s: %s\n", bench.size().text().c_str(), plan.text().c_str());
  print_timeline<Traits>(bench.traced(plan));
  bench.check();
}

template <class Traits>
void print_timelines(int count, char** words) {
  for (const Trials& trials : trials_of(count, words)) {
    FusedBench<Traits> bench(trials.size, trials.widths);
    for (const typename Traits::Plan& plan : plans_of(bench, trials)) print_timeline_of<Traits>(bench, plan);
  }
}

}  // namespace tilewire

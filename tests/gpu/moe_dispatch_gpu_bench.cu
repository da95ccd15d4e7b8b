// MoE dispatch + grouped GEMM: moe_dispatch_gpu_bench [--short | --nodes | --gpus] [FILE.json COMMIT DATE]. Random data and
// routes, medians over rounds in which all contenders take turns.
//
//   --nodes     2 nodes x 2 ranks on one GPU, joined by the emulated wire: against the floor, against the unfused sequence,
//               and against what the planner predicts
//   --gpus      a rank a GPU, over their links: against cuBLAS in a loop over the experts, rows gathered; and decode steps
//   --trials    the cluster of --nodes at points that the words name, T H I [E=experts,zipf=1] [NAME=VALUE,...]...: the compute
//               role alone in several forms, the planner's plan, and one that has each list's values in its place
//   --timeline  the same words: what the roles of the first rank do in a call of each of those plans
//   without     one GPU and no network. The compute role of one rank in the form of the kernel and in another one, against
//               cuBLAS in a loop over the experts, and the whole call beside it; how long a call is that ends behind the
//               tables; decode steps of 2 and 4 ranks, against reading the weights that they touch and a bare push of the rows
//   --short     the same at fewer points
//   serve       for tests/python/gpu/versus_grouped.py, see serve()
//   --steps     of the last one but the tables and the decode steps alone
#include "bench_trials.cuh"
#include "gpu_program.cuh"
#include "moe_bench.cuh"
#include "ops/moe_dispatch/roles.h"

#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace tilewire {
namespace {

using moe_dispatch::Skew;

constexpr Turns kTurns{.rounds = 7, .block_us = 5000, .least = 3, .most = 50};
constexpr const char* kLoop = "cublasGemmEx in a loop";

struct MoeTraits {
  static constexpr const char* kOp = "moe_dispatch";
  static constexpr const char* kWhole = "cuBLAS in a loop or the compute role alone on gathered rows";
  static constexpr const char* kUnfused = "dispatch by the same roles, then multiply";
  using Problem = moe_dispatch::Problem;
  using Plan = moe_dispatch::FusedPlan;

  static PlanOf<Plan> make_plan(const Problem& problem, const PlanContext& context) {
    return tilewire::make_plan<Plan>(problem, context);
  }
  static bool is_fused(const Plan& plan) { return plan.choice.is_fused; }
  static const char* form(const Plan& plan) { return moe_dispatch::form_of(plan)->name; }
  static std::vector<std::pair<std::string, double>> more(const Plan& plan) {
    return {{"block_tokens", plan.choice.block_tokens},
            {"chunk_tokens", plan.choice.chunk_tokens},
            {"pieces", plan.choice.pieces},
            {"local_first", plan.choice.local_first}};
  }
  static auto role_names() { return moe_dispatch::Roles::names(); }
};

// Rows of one rank for its experts.
std::vector<MoeBenchSize> grouped_sizes() {
  std::vector<MoeBenchSize> sizes;
  for (const auto& [h, cols] : {std::pair<int64_t, int64_t>{7168, 2048}, {4096, 1536}}) {
    for (const auto& [count, experts] : {std::pair<int64_t, int32_t>{8192, 8}, {8192, 32}, {32768, 16}, {65536, 32}}) {
      for (const Skew skew : {Skew::uniform, Skew::zipf, Skew::one}) {
        sizes.push_back({count, 1, experts, h, cols, skew});
      }
    }
  }
  return sizes;
}

// For who compares the compute role with others: a line has the number of a size and of launches, and is answered with
// microseconds a launch; without launches with H, I and the rows of each expert, and where there is no such size with "end".
void serve() {
  const std::vector<MoeBenchSize> sizes = grouped_sizes();
  std::unique_ptr<MoeBench> bench;
  TimeUs role;
  size_t current = sizes.size();
  for (std::string line; std::getline(std::cin, line);) {
    size_t number = 0;
    int count = 0;
    std::istringstream(line) >> number >> count;
    if (number < sizes.size() && number != current) {
      bench.reset();
      bench = std::make_unique<MoeBench>(sizes[number], std::vector<int32_t>{1});
      role = bench->plain();
      current = number;
    }
    if (number >= sizes.size()) {
      std::printf("end\n");
    } else if (count > 0) {
      std::printf("%.3f\n", role(count));
    } else {
      std::printf("%lld %lld", static_cast<long long>(sizes[number].h), static_cast<long long>(sizes[number].cols));
      for (const int64_t rows : bench->rows_of_experts(0)) std::printf(" %lld", static_cast<long long>(rows));
      std::printf("\n");
    }
    std::fflush(stdout);
  }
}

// The whole call of one rank, whose plan is one round, against the compute role alone.
BenchRow measure_grouped(const MoeBenchSize& size) {
  MoeBench bench(size, {1});
  const GroupedForm other = grouped_form<WithRoomForRows<Cooperative128x256InLine>>("coop128x256_line");
  const auto us = time_in_turns(kTurns, {bench.cublas(), bench.plain(), bench.grouped(other),  //
                                         bench.fused(bench.one_round())});
  bench.check();
  const BenchSize shape{size.tokens * size.top_k, size.cols, size.h};
  return {shape.text() + ", " + std::to_string(size.experts) + " experts, " + size.skew_name(),
          MoeTraits::form(bench.one_round()),
          compare(us[1], us[0]),
          {},
          {{"tflops", bench.flops() / median(us[1]) / 1e6},
           {"other_form_us", median(us[2])},
           {"whole_call_us", median(us[3])}}};
}

// From where a rank begins to count to where all know its tables.
double tables_us(const NotedWorks& rank) {
  uint64_t begin_ns = ~uint64_t{0}, end_ns = 0;
  for (const NotedWork& n : rank.works) {
    if (n.note.role == moe_dispatch::Roles::number("count")) begin_ns = std::min(begin_ns, n.note.t_begin_ns);
    if (n.note.role == moe_dispatch::Roles::number("route")) end_ns = std::max(end_ns, n.note.t_end_ns);
  }
  return static_cast<double>(end_ns - begin_ns) * 1e-3;
}

// A call that ends behind the tables, as there are too many rows: the whole of it, and what it notes of the tables.
void measure_routing(Rows& rows, int64_t tokens, int32_t top_k, int32_t experts, int32_t ranks) {
  constexpr double kGoalUs = 15;
  MoeBench bench({.tokens = tokens, .top_k = top_k, .experts = experts, .h = 64, .cols = 64, .max_tokens = 1}, {ranks});
  const auto us = time_in_turns(kTurns, {bench.fused(bench.one_round())});
  std::vector<double> noted_us;
  while (noted_us.size() < us[0].size()) noted_us.push_back(tables_us(bench.traced(bench.one_round())[0]));
  bench.check();
  const std::string shape = "T " + std::to_string(tokens) + " k " + std::to_string(top_k) + " E " +
                            std::to_string(experts) + ranks_text({ranks});
  const std::vector<double> goal_us(us[0].size(), kGoalUs);
  const char* form = MoeTraits::form(bench.one_round());
  rows.add({shape, form, compare(us[0], goal_us), {"routing_and_an_empty_call", "goal"}});
  rows.add({shape, form, compare(noted_us, goal_us), {"routing", "goal"}});
}

// Room for whatever the tokens may be routed to.
BenchRow measure_decode(int64_t tokens, int32_t ranks) {
  constexpr int32_t kTopK = 8;
  MoeBench bench(
      {.tokens = tokens, .top_k = kTopK, .experts = 64, .h = 7168, .cols = 2048, .max_tokens = ranks * tokens * kTopK},
      {ranks});
  const auto plan = MoeTraits::make_plan(bench.problem(), bench.context());
  const auto us = time_in_turns(kTurns, {bench.bare(), bench.fused(plan.choice)});
  bench.check();
  auto more = MoeTraits::more(plan.choice);
  more.emplace_back("predicted_us", plan.predicted_s * 1e6);
  return {bench.size().text() + ranks_text({ranks}),
          MoeTraits::form(plan.choice),
          compare(us[1], us[0]),
          {"decode", "weights read and rows pushed bare"},
          more};
}

BenchRow against_cublas(const MoeBenchSize& size, int32_t ranks) {
  MoeBench bench(size, {ranks});
  const auto plan = MoeTraits::make_plan(bench.problem(), bench.context());
  const Comparison found = compare_in_turns(kTurns, bench.cublas(), bench.fused(plan.choice));
  bench.check();
  return {size.text() + ranks_text({ranks}), MoeTraits::form(plan.choice), found};
}

void measure_steps(Rows& rows, bool is_short) {
  for (const int32_t ranks : {1, 4}) {
    for (const auto& [tokens, top_k, experts] : {std::tuple{1, 1, 8}, {128, 8, 256}, {8192, 8, 256}}) {
      measure_routing(rows, tokens, top_k, experts, ranks);
    }
  }
  for (const int32_t ranks : {2, 4}) {
    for (const int64_t tokens : {1, 8, 32, 128}) {
      if (!is_short || tokens == 32) rows.add(measure_decode(tokens, ranks));
    }
  }
}

void measure_one_gpu(Rows& rows, bool is_short) {
  measure_steps(rows, is_short);
  for (const MoeBenchSize& size : grouped_sizes()) {
    if (is_short && (size.skew == Skew::one || size.tokens == 32768)) continue;
    rows.add(measure_grouped(size));
  }
}

void measure_nodes(Rows& rows) {
  for (const auto& [h, cols] : {std::pair<int64_t, int64_t>{7168, 2048}, {4096, 1536}}) {
    for (const int64_t tokens : {512, 1024, 4096}) {
      for (const auto& [experts, skew] : {std::pair{32, Skew::uniform}, {128, Skew::uniform}, {32, Skew::zipf}}) {
        measure_point<MoeTraits, MoeBench>(kTurns, {tokens, 8, experts, h, cols, skew}, rows);
      }
    }
  }
  for (const char* bench : {"fused_vs_floor", "fused_vs_unfused", "predicted_vs_measured"}) rows.print_mean(bench);
}

void measure_gpus(Rows& rows) {
  for (const int64_t tokens : {1, 8, 32, 128}) rows.add(measure_decode(tokens, gpus_of_clusters));
  for (const auto& [h, cols] : {std::pair<int64_t, int64_t>{7168, 2048}, {4096, 1536}}) {
    for (const int64_t tokens : {1024, 4096}) {
      for (const Skew skew : {Skew::uniform, Skew::zipf}) {
        rows.add(against_cublas({tokens, 8, 16 * gpus_of_clusters, h, cols, skew}, gpus_of_clusters));
      }
    }
  }
}

// Words: see above. `visit(bench, the planner's plan, the words of the others)`
template <class Visit>
void for_each_point(int count, char** words, const Visit& visit) {
  for (int i = 0; i + 2 < count;) {
    MoeBenchSize size{std::stoll(words[i]), 8, 32, std::stoll(words[i + 1]), std::stoll(words[i + 2])};
    i += 3;
    if (i < count && std::strncmp(words[i], "E=", 2) == 0) {
      size.experts = std::stoi(words[i] + 2);
      if (std::strstr(words[i++], "zipf=1") != nullptr) size.skew = Skew::zipf;
    }
    std::vector<std::string> changes;
    for (; i < count && std::strchr(words[i], '=') != nullptr; ++i) changes.emplace_back(words[i]);
    MoeBench bench(size, {2, 2});
    const auto plan = MoeTraits::make_plan(bench.problem(), bench.context());
    std::vector<moe_dispatch::FusedPlan> plans{plan.choice};
    for (const std::string& change : changes) {
      plans.push_back(check_plan(changed_plan(plan.choice, change), bench.problem(), bench.context()).choice);
    }
    visit(bench, plans);
  }
}

void print_trials_at(int count, char** words) {
  const Turns turns{.rounds = 5, .block_us = 5000, .least = 2, .most = 40};
  for_each_point(count, words, [&](MoeBench& bench, const std::vector<moe_dispatch::FusedPlan>& plans) {
    std::vector<TimeUs> contenders{bench.cublas(), bench.plain()};
    const GroupedForm forms[] = {grouped_form<WithRoomForRows<Cooperative128x256InLine>>("coop128x256_line")};
    for (const GroupedForm& form : forms) contenders.push_back(bench.grouped(form));
    const size_t alone = contenders.size();
    for (const auto& plan : plans) contenders.push_back(bench.fused(plan));
    const auto us = time_in_turns(turns, contenders);
    bench.check();
    std::printf("%s: cuBLAS %.1f us, compute role alone %.1f", bench.size().text().c_str(), median(us[0]),
                median(us[1]));
    for (size_t f = 0; f < std::size(forms); ++f) std::printf(", %s %.1f", forms[f].name.c_str(), median(us[f + 2]));
    std::printf("\n");
    for (size_t i = 0; i < plans.size(); ++i) {
      const double predicted_s = check_plan(plans[i], bench.problem(), bench.context()).predicted_s;
      std::printf("  %9.1f us, predicted %9.1f  %s\n", median(us[i + alone]), predicted_s * 1e6,
                  plans[i].text().c_str());
    }
    std::fflush(stdout);
  });
}

void print_timelines_at(int count, char** words) {
  for_each_point(count, words, [](MoeBench& bench, const std::vector<moe_dispatch::FusedPlan>& plans) {
    for (const auto& plan : plans) print_timeline_of<MoeTraits>(bench, plan);
  });
}

int run(int count, char** words) {
  const std::string mode = count > 1 && words[1][0] == '-' ? words[1] : "";
  char** file = count >= (mode.empty() ? 4 : 5) ? words + (mode.empty() ? 1 : 2) : nullptr;
  if (count > 1 && std::string(words[1]) == "serve") {
    serve();
  } else if (mode == "--timeline") {
    print_timelines_at(count - 2, words + 2);
  } else if (mode == "--trials") {
    print_trials_at(count - 2, words + 2);
  } else if (mode == "--nodes") {
    Rows rows({"fused_vs_floor", "", MoeTraits::kOp}, file);
    measure_nodes(rows);
  } else if (mode == "--steps") {
    Rows rows({"decode", "", MoeTraits::kOp}, file);
    measure_steps(rows, false);
  } else if (mode == "--gpus") {
    spread_over_all_gpus();
    Rows rows({"fused_nvlink", kLoop, MoeTraits::kOp}, file);
    measure_gpus(rows);
  } else {
    Rows rows({"compute_role", kLoop, MoeTraits::kOp}, file);
    measure_one_gpu(rows, mode == "--short");
  }
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}

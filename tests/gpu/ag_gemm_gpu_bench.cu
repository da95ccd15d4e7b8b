// The fused AllGather+GEMM: ag_gemm_gpu_bench [--gpus | --nodes | --calibrate] [FILE.json COMMIT DATE]. Random data, medians
// over rounds in which all contenders take turns.
//
//   --nodes      2 nodes x 2 ranks on one GPU, joined by the emulated wire, at the fixed points: against the floor, against
//                the unfused sequence, and against what the planner predicts
//   --calibrate  the same cluster at other points, every form by several ways to walk: what the cost model's constants
//                are taken from
//   --gpus       a rank a GPU, over their links
//   without      one GPU and no network. One rank against cuBLAS: what the machinery of a call costs (own copy, flags,
//                begin and end), with SMs that only push. Virtual nodes of 2 and 4 ranks on SMs / ranks each, all at once,
//                against cuBLAS on as many SMs a rank that finds its data gathered: the cost of the roles beside each
//                other and of waiting; nothing of links between GPUs, and all ranks share a memory, a cache and a power limit
#include "bare_transfer.cuh"
#include "fused_bench.cuh"
#include "gpu_program.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

namespace tilewire {
namespace {

constexpr Turns kTurns{.rounds = 7, .block_us = 6000, .least = 5, .most = 60};
constexpr const char* kGathered = "cublasGemmEx, data gathered beforehand";

// Rows of all ranks together, columns of each.
constexpr BenchSize kSizes[] = {{8192, 8192, 8192}, {8192, 3584, 8192},  {8192, 4096, 4096}, {2048, 8192, 8192},
                                {4096, 4096, 4096}, {8192, 28672, 1024}, {8192, 4096, 512}};
constexpr BenchSize kLinkSizes[] = {{8192, 8192, 8192}, {8192, 4096, 8192},  {8192, 2048, 8192}, {8192, 1024, 8192},
                                    {8192, 512, 8192},  {2048, 14336, 4096}, {2048, 4096, 8192}, {2048, 2048, 4096},
                                    {512, 4096, 4096},  {4096, 2048, 4096}};
constexpr BenchSize kNodeSizes[] = {{8192, 8192, 8192}, {8192, 4096, 4096}, {2048, 4096, 8192}, {8192, 4096, 1024}};
constexpr BenchSize kOtherSizes[] = {{4096, 3072, 6144}, {4096, 6144, 2048},  {8192, 6144, 6144},
                                     {1024, 8192, 4096}, {2048, 12288, 6144}, {6144, 2048, 2048}};

struct Split {
  int32_t push_ctas, raster_rows;
  bool own_in_place = true;
  uint32_t pace_clocks = 0;
};

class Rows {
 public:
  // Words: FILE.json COMMIT DATE, or none of them.
  Rows(BenchFile file, char** words) : file_(std::move(file)), words_(words) {}

  void add(BenchRow row) {
    std::printf("%-20s %-44s %-20s %9.1f us   baseline %9.1f us   ratio %.3f (%.3f to %.3f)\n",
                row.own.bench.empty() ? file_.bench.c_str() : row.own.bench.c_str(), row.shape.c_str(),
                row.form.c_str(), row.found.ours_us, row.found.baseline_us, row.found.ratio, row.found.low,
                row.found.high);
    std::fflush(stdout);
    rows_.push_back(std::move(row));
    if (words_ != nullptr) write_json(words_[0], words_[1], words_[2], file_, rows_);
  }
  void print_mean(const std::string& bench) const {
    double log_sum = 0, worst = 1e9;
    int count = 0;
    for (const BenchRow& row : rows_) {
      if (row.own.bench != bench) continue;
      log_sum += std::log(row.found.ratio);
      worst = std::min(worst, row.found.ratio);
      ++count;
    }
    std::printf("%s: geometric mean %.4f, worst %.4f of %d\n", bench.c_str(), std::exp(log_sum / count), worst, count);
  }

 private:
  BenchFile file_;
  char** words_;
  std::vector<BenchRow> rows_;
};

std::string ranks_text(const std::vector<int32_t>& widths) {
  std::string text;
  for (const int32_t width : widths) text += (text.empty() ? "" : "+") + std::to_string(width);
  return ", ranks " + text;
}

// As planned, but for what the split says.
BenchRow against_cublas(const BenchSize& size, int32_t ranks, const Split& split) {
  constexpr int64_t kChunkBytes = 32768;  // of what warps beside the tiles copy
  FusedBench bench(size, {ranks});
  ag_gemm::FusedPlan plan = ag_gemm::make_fused_plan(bench.problem(), bench.context(), split.push_ctas).choice;
  plan.choice.raster_rows = split.raster_rows;
  plan.choice.chunk_rows = split.push_ctas > 0 ? 128 : std::max<int64_t>(1, kChunkBytes / (2 * size.depth));
  plan.own_in_place = split.own_in_place;
  plan.pace_clocks = split.pace_clocks;
  const Comparison found = compare_in_turns(kTurns, bench.cublas(), bench.fused(plan));
  bench.check();
  const std::string shape = size.text() + ranks_text({ranks}) + ", push " + std::to_string(split.push_ctas) +
                            ", raster " + std::to_string(split.raster_rows) + (split.own_in_place ? "" : ", own copy") +
                            (split.pace_clocks > 0 ? ", pace " + std::to_string(split.pace_clocks) : "");
  return {shape, ag_gemm::form_of(plan.choice)->name, found};
}

// Microseconds in which the wire moves all shards when nothing else runs: the rate of several calls' shards in a row, so
// without its latency.
double bare_transfer_us(const BenchSize& size, const std::vector<int32_t>& widths, int64_t chunk_bytes) {
  constexpr int64_t kCalls = 4;
  VirtualCluster cluster(
      {.widths = widths, .max_chunks = 8192, .half_bytes = size.rows * size.depth * 2, .network = kBenchNetwork});
  BareTransfer transfer(cluster, size.rows * size.depth * 2 / cluster.ranks(), chunk_bytes);
  std::vector<double> us;
  for (Epoch first = 1; us.size() < 5; first += kCalls) {
    cluster.start_wire();
    us.push_back(transfer.run_us(first, kCalls) / kCalls);
    cluster.stop_wire();
  }
  return median(us);
}

// The best of the planner's candidates that gather first, with the chunks of its plan.
ag_gemm::FusedPlan unfused_of(const PlanOf<ag_gemm::FusedPlan>& plan) {
  const CandidateOf<ag_gemm::FusedPlan>* best = nullptr;
  for (const CandidateOf<ag_gemm::FusedPlan>& c : plan.candidates) {
    if (!c.choice.choice.is_fused && (best == nullptr || c.predicted_s < best->predicted_s)) best = &c;
  }
  if (best == nullptr) throw std::runtime_error("the planner has no unfused candidate");
  return best->choice;
}

void measure_point(const BenchSize& size, Rows& rows) {
  const std::vector<int32_t> widths{2, 2};
  FusedBench bench(size, widths);
  const PlanOf<ag_gemm::FusedPlan> plan = ag_gemm::make_fused_plan(bench.problem(), bench.context());
  const std::vector<std::vector<double>> us =
      time_in_turns(kTurns, {bench.cublas(), bench.plain(), bench.fused(unfused_of(plan)), bench.fused(plan.choice)});
  bench.check();
  // Larger chunks move at the wire's full rate.
  const int64_t chunk_bytes = std::max<int64_t>(65536, plan.choice.choice.chunk_rows * size.depth * 2);
  const double move_us = bare_transfer_us(size, widths, chunk_bytes);
  std::vector<double> floor_us, compute_us, predicted_us(us[3].size(), plan.predicted_s * 1e6);
  for (size_t i = 0; i < us[0].size(); ++i) {
    compute_us.push_back(std::min(us[0][i], us[1][i]));
    floor_us.push_back(std::max(compute_us.back(), move_us));
  }
  const std::string shape = size.text() + ranks_text(widths), form = ag_gemm::form_of(plan.choice.choice)->name;
  const std::vector<std::pair<std::string, double>> more{{"rate_bytes_per_s", kBenchNetwork.bandwidth_bytes_per_s},
                                                         {"compute_us", median(compute_us)},
                                                         {"communication_us", move_us},
                                                         {"chunk_rows", plan.choice.choice.chunk_rows},
                                                         {"raster_rows", plan.choice.choice.raster_rows},
                                                         {"is_fused", plan.choice.choice.is_fused}};
  rows.add({shape,
            form,
            compare(us[3], floor_us),
            {"fused_vs_floor", "max(cuBLAS or plain kernel on gathered data, bare transfer)"},
            more});
  rows.add({shape, form, compare(us[3], us[2]), {"fused_vs_unfused", "gather by the same roles, then multiply"}, more});
  rows.add({shape, form, compare(us[3], predicted_us), {"predicted_vs_measured", "the planner's prediction"}, more});
}

void calibrate(const BenchSize& size, Rows& rows) {
  for (const int64_t chunk_bytes : {65536, 131072, 262144}) {
    FusedBench bench(size, {2, 2});
    ag_gemm::FusedPlan plan = ag_gemm::make_fused_plan(bench.problem(), bench.context()).choice;
    for (const FormNumbers& form : ag_gemm::kFusedForms) {
      for (const int32_t raster_rows : {1, 2, 8}) {
        if (chunk_bytes != 131072 && (&form != &ag_gemm::kFusedForms[0] || raster_rows > 1)) continue;
        plan.choice.chunk_rows = std::max<int64_t>(1, chunk_bytes / (2 * size.depth));
        plan.choice.tile_rows = form.work_rows();
        plan.choice.tile_cols = form.work_cols();
        plan.choice.workers = bench.context().workers / form.cluster_ctas();
        plan.choice.raster_rows = raster_rows;
        plan.choice.is_fused = true;
        const double predicted_us = ag_gemm::check_fused_plan(plan, bench.problem(), bench.context()).predicted_s * 1e6;
        const Turns turns{.rounds = 3, .block_us = 4000, .least = 3, .most = 20};
        const std::vector<std::vector<double>> us = time_in_turns(turns, {bench.fused(plan)});
        rows.add(
            {size.text() + ", chunks of " + std::to_string(chunk_bytes) + ", raster " + std::to_string(raster_rows),
             form.name, compare(us[0], std::vector<double>(us[0].size(), predicted_us))});
      }
    }
    bench.check();
  }
}

int run(int count, char** words) {
  const std::string mode = count > 1 && words[1][0] == '-' ? words[1] : "";
  char** file = count >= (mode.empty() ? 4 : 5) ? words + (mode.empty() ? 1 : 2) : nullptr;
  if (mode == "--nodes") {
    Rows rows({"fused_vs_floor", ""}, file);
    for (const int64_t m : {2048, 8192}) {
      for (const int64_t k : {4096, 8192}) {
        for (const int64_t n : {2048, 3584, 4096, 8192, 14336}) measure_point({m, n, k}, rows);
      }
    }
    for (const char* bench : {"fused_vs_floor", "fused_vs_unfused", "predicted_vs_measured"}) rows.print_mean(bench);
  } else if (mode == "--calibrate") {
    Rows rows({"calibration", "the planner's prediction"}, file);
    for (const BenchSize& size : kOtherSizes) calibrate(size, rows);
  } else if (mode == "--gpus") {
    spread_over_all_gpus();
    Rows rows({"fused_nvlink", kGathered}, file);
    for (const BenchSize& size : kLinkSizes) {
      for (const Split split : {Split{0, 1}, Split{0, 1, true, 2500}, Split{0, 1, true, 3000}, Split{8, 1}}) {
        rows.add(against_cublas(size, gpus_of_clusters, split));
      }
    }
  } else {
    Rows rows({"fused_virtual_node", kGathered}, file);
    for (const BenchSize& size : kSizes) {
      for (const Split split : {Split{0, 8}, Split{0, 2}, Split{2, 8}, Split{4, 8, false}}) {
        rows.add(against_cublas(size, 1, split));
      }
    }
    for (const int32_t ranks : {2, 4}) {
      for (const BenchSize& size : kNodeSizes) {
        for (const Split split : {Split{0, 1}, Split{0, 4}, Split{2, 1}, Split{4, 1}}) {
          rows.add(against_cublas(size, ranks, split));
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}

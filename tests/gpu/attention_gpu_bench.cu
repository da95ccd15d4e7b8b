// How long ring attention takes:
//
//   attention_gpu_bench [FILE.json COMMIT DATE]   the shapes below, alone on one rank, and on several ranks of one GPU
//   attention_gpu_bench --nodes [FILE.json COMMIT DATE]   2 nodes x 2 ranks on one GPU, joined by the emulated wire: the
//                                            planner's plan against the floor, against the gather with attention behind it, and
//                                            against what the planner predicts; how even the rows of a zigzag are
//   attention_gpu_bench --gpus [FILE.json COMMIT DATE]    the same with a rank on each of all GPUs
//   attention_gpu_bench --tries [ROWS full|causal [NAME=VALUE,...]...]...   other plans beside the planner's at points of
//                                            --nodes: each list of fields of the plan makes one
//   attention_gpu_bench serve                reads a number of a shape and one of launches a line, and answers with
//                                            microseconds a launch: for attention_versus.py, which has what we compare with
#include "attention_case.cuh"
#include "bare_transfer.cuh"
#include "bench_trials.cuh"
#include "fused_bench.cuh"

#include <chrono>
#include <iostream>
#include <sstream>
#include <stdexcept>

namespace tilewire {
namespace {

struct Shape {
  int64_t batch, rows, keys, q_heads, kv_heads, dim;
  bool is_causal;

  std::string text() const {
    return "B" + std::to_string(batch) + " H" + std::to_string(q_heads) + "/" + std::to_string(kv_heads) + " S" +
           std::to_string(rows) + "x" + std::to_string(keys) + " D" + std::to_string(dim) +
           (is_causal ? " causal" : " full");
  }
};
constexpr Shape kShapes[] = {{1, 8192, 8192, 32, 32, 128, false},   {1, 8192, 8192, 32, 32, 128, true},
                             {1, 16384, 16384, 32, 32, 128, false}, {1, 16384, 16384, 32, 32, 128, true},
                             {4, 4096, 4096, 16, 16, 128, false},   {4, 4096, 4096, 16, 16, 128, true},
                             {1, 8192, 8192, 32, 8, 128, true},     {8, 2048, 2048, 16, 16, 128, true},
                             {1, 8192, 8192, 32, 32, 64, false},    {1, 8192, 8192, 32, 32, 64, true}};

AttentionSize size_of(const Shape& s, int32_t ranks) {
  // At most 384 items a group.
  const int64_t items = s.q_heads / s.kv_heads * div_up(s.rows, attention::fused_form(s.dim).rows);
  AttentionSize size{.name = s.text(),
                     .rows = std::vector<int64_t>(static_cast<size_t>(ranks), s.rows),
                     .kv_rows = std::vector<int64_t>(static_cast<size_t>(ranks), s.keys),
                     .batch = s.batch,
                     .q_heads = s.q_heads,
                     .kv_heads = s.kv_heads,
                     .head_dim = s.dim,
                     .is_causal = s.is_causal,
                     .chunk_rows = 640,
                     .group_pairs = static_cast<int32_t>(std::max<int64_t>(1, 384 / items)),
                     .ctas = 132 / ranks};
  if (ranks > 1 && s.is_causal) size.placement = attention::Placement::zigzag;
  return size;
}

class TimedCase {
 public:
  explicit TimedCase(const AttentionSize& size) : data_(size, 1, 10'000'000'000) {
    data_.prepare(1);
    for (int32_t r = 0; r < data_.ranks(); ++r) parameters_.push_back(data_.parameters(r));
    data_.cluster().use(data_.ranks() - 1);
    check_cuda(cudaEventCreate(&begin_), "making an event");
    check_cuda(cudaEventCreate(&end_), "making an event");
  }
  double us(int count) {
    const int32_t last = data_.ranks() - 1;
    data_.cluster().use(last);
    check_cuda(cudaDeviceSynchronize(), "waiting");
    check_cuda(cudaEventRecord(begin_, data_.cluster().stream(last)), "timing");
    for (int i = 0; i < count; ++i) launch_all();
    data_.cluster().use(last);
    check_cuda(cudaEventRecord(end_, data_.cluster().stream(last)), "timing");
    data_.wait();
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "timing");
    return 1000.0 * ms / count;
  }
  // Of several cases at once, microseconds a launch of all.
  static double us_of_all(const std::vector<std::unique_ptr<TimedCase>>& cases, int count) {
    check_cuda(cudaDeviceSynchronize(), "waiting");
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) {
      for (const auto& one : cases) one->launch_all();
    }
    for (const auto& one : cases) one->data_.wait();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
  }
  // Throws if a wait has expired.
  void check() const {
    for (int32_t r = 0; r < data_.ranks(); ++r) {
      if (data_.cluster().fault(r).state != FaultRecord::kNone) throw std::runtime_error("a wait expired in the bench");
    }
  }
  std::string form() const { return data_.kernel(0).form().name; }
  double flops() const {
    double sum = 0;
    for (int32_t r = 0; r < data_.ranks(); ++r) sum += data_.flops(r);
    return sum;
  }

 private:
  void launch_all() {
    for (int32_t r = 0; r < data_.ranks(); ++r) data_.launch(r, parameters_[static_cast<size_t>(r)]);
  }

  AttentionCase data_;
  std::vector<attention::FusedParameters> parameters_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

void serve() {
  std::unique_ptr<TimedCase> timed;
  int current = -1;
  for (std::string line; std::getline(std::cin, line);) {
    int shape = 0, count = 0;
    std::istringstream(line) >> shape >> count;
    if (shape != current) {
      timed.reset();
      timed = std::make_unique<TimedCase>(size_of(kShapes[shape], 1));
      current = shape;
    }
    std::printf("%.3f %.6g\n", timed->us(count), timed->flops());
    std::fflush(stdout);
  }
}

const BenchFile kFile{"attention_gpu_bench", "tensor cores alone at their peak, 989 TFLOP/s", "attention"};
const BenchFile kRing{"attention_ring_gpu_bench", "all rows on one rank with all SMs", "attention"};
constexpr double kPeakFlopsPerUs = 989e6;

// In turns, a block of about 20 ms each.
constexpr Turns kTurns{.rounds = 7, .block_us = 20'000, .least = 2, .most = 50};

BenchRow row_of(const TimedCase& timed, const std::string& shape, const Comparison& found, const BenchFile& file) {
  std::printf("%-46s %9.1f us, %6.1f TFLOP/s, ratio %.3f to %s\n", shape.c_str(), found.ours_us,
              timed.flops() / found.ours_us / 1e6, found.ratio, file.baseline_name.c_str());
  std::fflush(stdout);
  return {shape, timed.form(), found, file, {{"tflops", timed.flops() / found.ours_us / 1e6}}};
}

BenchRow measure_alone(const Shape& shape) {
  TimedCase timed(size_of(shape, 1));
  const double peak_us = timed.flops() / kPeakFlopsPerUs;
  const auto us = time_in_turns(kTurns, {[&](int count) { return timed.us(count); }});
  return row_of(timed, shape.text(), compare(us[0], std::vector<double>(us[0].size(), peak_us)), kFile);
}

// Ranks that share the SMs against one rank that has all of them, and all rows.
BenchRow measure_ring(const Shape& shape, int32_t ranks) {
  TimedCase ring(size_of(shape, ranks));
  Shape whole = shape;
  whole.rows = whole.keys = shape.rows * ranks;
  TimedCase one(size_of(whole, 1));
  const Comparison found = compare_in_turns(
      kTurns, [&](int count) { return one.us(count); }, [&](int count) { return ring.us(count); });
  return row_of(ring, std::to_string(ranks) + " ranks, each " + shape.text(), found, kRing);
}

// A call of each rank of a ring by itself: its rows against the keys of all, which lie beside it.
class AloneCases {
 public:
  explicit AloneCases(const AttentionSize& ring) {
    const auto ranks = static_cast<int32_t>(ring.rows.size());
    const int64_t all = std::accumulate(ring.rows.begin(), ring.rows.end(), int64_t{0});
    const auto placed = ring.placement == attention::Placement::zigzag ? attention::zigzag_positions(all, ranks)
                                                                       : attention::contiguous_positions(ring.rows);
    for (int32_t r = 0; r < ranks; ++r) {
      AttentionSize size = ring;
      size.rows = {ring.rows[static_cast<size_t>(r)]};
      size.kv_rows = {all};
      size.widths = {};
      size.window = 0;
      size.is_fused = true;
      size.given = {placed[static_cast<size_t>(r)]};
      size.given_kv = attention::contiguous_positions({all});
      size.documents = {0, all};  // where causal, a row sees what is before it of them all
      cases_.push_back(std::make_unique<TimedCase>(size));
    }
  }
  // All at once, as they share a GPU, or the longest one where each has its own.
  double us(int count) {
    if (gpus_of_clusters == 1) return TimedCase::us_of_all(cases_, count);
    const std::vector<double> each = us_of_each(count);
    return *std::max_element(each.begin(), each.end());
  }
  std::vector<double> us_of_each(int count) {
    std::vector<double> us;
    for (const auto& one : cases_) us.push_back(one->us(count));
    return us;
  }

 private:
  std::vector<std::unique_ptr<TimedCase>> cases_;
};

// How the planner would have it; the last one of its candidates is not fused.
AttentionSize planned(AttentionSize size, const attention::FusedPlan& plan) {
  size.chunk_rows = plan.choice.chunk_rows;
  size.window = plan.choice.window;
  size.group_pairs = plan.choice.group_pairs;
  size.is_fused = plan.choice.is_fused;
  size.pace_clocks = plan.pace_clocks;
  return size;
}

struct Ring {
  AttentionSize size;
  PlanOf<attention::FusedPlan> plan;
  std::unique_ptr<TopologyTables> topology{};
  PlanContext context{.topology = {}, .me = Rank{0}, .arena = {}, .machine = {}};

  attention::FusedPlan unfused() const {
    for (const auto& c : plan.candidates) {
      if (!c.choice.choice.is_fused) return c.choice;
    }
    throw std::runtime_error("the planner has no unfused candidate");
  }
};

constexpr int32_t kWireSms = 4;

Ring ring_of(const Shape& shape, const std::vector<int32_t>& widths) {
  const int32_t ranks = std::accumulate(widths.begin(), widths.end(), 0);
  const int32_t ranks_per_gpu = (ranks + gpus_of_clusters - 1) / gpus_of_clusters;
  Ring ring{.size = size_of(shape, ranks), .plan = {}};
  ring.size.widths = widths;
  ring.size.network_bytes_per_s = kBenchNetwork.bandwidth_bytes_per_s;
  ring.size.ctas = (sm_count() - (widths.size() > 1 ? kWireSms : 0)) / ranks_per_gpu;
  ring.topology = std::make_unique<TopologyTables>(TopologyTables::from_layout(widths));
  ring.context.topology = ring.topology->view();
  ring.context.machine = gpu_machine(ranks_per_gpu);
  ring.context.arena.flags = {.ranks = ranks, .max_chunks = kBenchChunks};
  ring.context.arena.half_stride_bytes = int64_t{1} << 40;
  ring.context.machine.network_bytes_per_s = ring.size.network_bytes_per_s;
  ring.context.workers = ring.size.ctas;
  ring.plan = make_plan<attention::FusedPlan>(AttentionCase::problem_of(ring.size), ring.context);
  return ring;
}

// What the ranks compute by themselves takes, and what they send takes with nothing else running: a call takes that at least.
struct Floor {
  std::vector<double> us;
  double move_us;
};
Floor floor_of(const Shape& shape, const std::vector<int32_t>& widths, const Ring& ring,
               const std::vector<double>& alone_us) {
  const int64_t row_bytes = shape.kv_heads * 2 * shape.dim * 2, shard = shape.batch * shape.keys * row_bytes;
  const int64_t chunk = ring.plan.choice.choice.chunk_rows * 2 * shape.dim * 2;
  Floor floor{{}, widths.size() > 1 ? bare_transfer_us(widths, shard, std::max<int64_t>(65536, chunk)) : 0};
  for (const double one : alone_us) floor.us.push_back(std::max(one, floor.move_us));
  return floor;
}

void measure_point(const Shape& shape, const std::vector<int32_t>& widths, Rows& rows) {
  constexpr Turns kPointTurns{.rounds = 5, .block_us = 20'000, .least = 1, .most = 30};
  const Ring ring = ring_of(shape, widths);
  TimedCase fused(planned(ring.size, ring.plan.choice)), unfused(planned(ring.size, ring.unfused()));
  AloneCases alone(ring.size);
  const auto us = time_in_turns(
      kPointTurns, {[&](int count) { return alone.us(count); }, [&](int count) { return unfused.us(count); },
                    [&](int count) { return fused.us(count); }});
  fused.check();
  unfused.check();
  const Floor floor = floor_of(shape, widths, ring, us[0]);
  const std::string text = shape.text() + ranks_text(widths);
  const std::vector<std::pair<std::string, double>> more{
      {"compute_us", median(us[0])},
      {"communication_us", floor.move_us},
      {"chunk_rows", static_cast<double>(ring.plan.choice.choice.chunk_rows)},
      {"tflops", fused.flops() / median(us[2]) / 1e6}};
  const std::string form = fused.form();
  rows.add({text,
            form,
            compare(us[2], floor.us),
            {"fused_vs_floor", "max(the kernel with all keys there, bare transfer)"},
            more});
  rows.add({text, form, compare(us[2], us[1]), {"fused_vs_unfused", "gather, then attention by the same roles"}, more});
  const std::vector<double> predicted(us[2].size(), ring.plan.predicted_s * 1e6);
  rows.add({text, form, compare(us[2], predicted), {"predicted_vs_measured", "the planner's prediction"}, more});
  if (!shape.is_causal) return;
  std::vector<double> mean, slowest;
  for (int round = 0; round < 3; ++round) {
    const std::vector<double> each = alone.us_of_each(2);
    mean.push_back(std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size()));
    slowest.push_back(*std::max_element(each.begin(), each.end()));
  }
  rows.add({text, form, compare(slowest, mean), {"zigzag_balance", "the mean of all ranks"}});
}

// Words as above; what is known of a call's floor is the same for all of its plans.
void print_tries(int count, char** words) {
  constexpr Turns turns{.rounds = 3, .block_us = 15'000, .least = 2, .most = 8};
  const std::vector<int32_t> widths{2, 2};
  for (int at = 0; at + 1 < count;) {
    const int64_t rows = std::stoll(words[at]);
    const Shape shape{1, rows, rows, 32, 8, 128, std::string(words[at + 1]) == "causal"};
    const Ring ring = ring_of(shape, widths);
    std::vector<attention::FusedPlan> plans{ring.plan.choice, ring.unfused()};
    for (at += 2; at < count && std::strchr(words[at], '=') != nullptr; ++at) {
      plans.push_back(changed_plan(ring.plan.choice, words[at]));
    }
    AloneCases alone(ring.size);
    std::vector<TimeUs> contenders{[&](int times) { return alone.us(times); }};
    std::vector<std::unique_ptr<TimedCase>> cases;
    for (const attention::FusedPlan& plan : plans) {
      check_plan(plan, AttentionCase::problem_of(ring.size), ring.context);
      TimedCase& one = *cases.emplace_back(std::make_unique<TimedCase>(planned(ring.size, plan)));
      contenders.emplace_back([&one](int times) { return one.us(times); });
    }
    const auto us = time_in_turns(turns, contenders);
    const Floor floor = floor_of(shape, widths, ring, us[0]);
    std::printf("%s: alone %.1f us, bare transfer %.1f us, predicted %.1f us\n", shape.text().c_str(), median(us[0]),
                floor.move_us, ring.plan.predicted_s * 1e6);
    for (size_t i = 0; i < plans.size(); ++i) {
      cases[i]->check();
      std::printf("  %9.1f us  %.3f of the floor  %s\n", median(us[i + 1]), compare(us[i + 1], floor.us).ratio,
                  plans[i].text().c_str());
    }
    std::fflush(stdout);
  }
}

void measure_rings(const std::vector<int32_t>& widths, Rows& rows) {
  for (const bool is_causal : {false, true}) {
    for (const int64_t s : {2048, 4096, 8192, 16384}) measure_point({1, s, s, 32, 8, 128, is_causal}, widths, rows);
  }
  for (const char* bench : {"fused_vs_floor", "fused_vs_unfused", "predicted_vs_measured", "zigzag_balance"}) {
    rows.print_mean(bench);
  }
}

int run(int count, char** words) {
  const std::string mode = count > 1 && words[1][0] == '-' ? words[1] : "";
  if (mode == "--tries") {
    print_tries(count - 2, words + 2);
    return 0;
  }
  if (!mode.empty()) {
    if (mode == "--gpus") spread_over_all_gpus();
    Rows rows({"fused_vs_floor", "", "attention"}, count >= 5 ? words + 2 : nullptr);
    measure_rings(mode == "--gpus" ? std::vector<int32_t>{gpus_of_clusters} : std::vector{2, 2}, rows);
    return 0;
  }
  if (count > 1 && std::string(words[1]) == "serve") {
    serve();
    return 0;
  }
  std::vector<BenchRow> rows;
  for (const Shape& shape : kShapes) rows.push_back(measure_alone(shape));
  for (const int32_t ranks : {2, 4}) {
    for (const bool is_causal : {false, true}) {
      for (const int64_t s : {2048, 4096, 8192}) rows.push_back(measure_ring({1, s, s, 32, 8, 128, is_causal}, ranks));
    }
  }
  if (count > 3) write_json(words[1], words[2], words[3], kFile, rows);
  return 0;
}

}  // namespace
}  // namespace tilewire

int main(int count, char** words) {
  tilewire::prepare_for_waiting_kernels();
  return tilewire::run_gpu_program([&] { return tilewire::run(count, words); });
}

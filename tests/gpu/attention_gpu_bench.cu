// How long ring attention takes:
//
//   attention_gpu_bench [json commit date]   the shapes below, alone on one rank, and on several ranks of one GPU
//   attention_gpu_bench serve                reads a number of a shape and one of launches a line, and answers with
//                                            microseconds a launch: for attention_versus.py, which has what we compare with
#include "attention_case.cuh"
#include "bench_rows.cuh"

#include <iostream>
#include <sstream>

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
  const int64_t items = s.q_heads / s.kv_heads * ((s.rows + 127) / 128);
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
    check_cuda(cudaEventCreate(&begin_), "making an event");
    check_cuda(cudaEventCreate(&end_), "making an event");
  }
  double us(int count) {
    const int32_t last = data_.ranks() - 1;
    check_cuda(cudaDeviceSynchronize(), "waiting");
    check_cuda(cudaEventRecord(begin_, data_.cluster().stream(last)), "timing");
    for (int i = 0; i < count; ++i) {
      for (int32_t r = 0; r < data_.ranks(); ++r) data_.launch(r, parameters_[static_cast<size_t>(r)]);
    }
    check_cuda(cudaEventRecord(end_, data_.cluster().stream(last)), "timing");
    data_.wait();
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "timing");
    return 1000.0 * ms / count;
  }
  std::string form() const { return data_.kernel(0).form().name; }
  double flops() const {
    double sum = 0;
    for (int32_t r = 0; r < data_.ranks(); ++r) sum += data_.flops(r);
    return sum;
  }

 private:
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
const BenchFile kRing{"ring_attention_gpu_bench", "all rows on one rank with all SMs", "attention"};
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

int run(int count, char** words) {
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

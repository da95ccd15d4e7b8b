// Contenders of the bench of MoE dispatch: all ranks of a cluster with as many tokens each, random data and routes.
#pragma once

#include "bare_read.cuh"
#include "coded_values.h"
#include "fused_bench.cuh"
#include "grouped_gemm.cuh"
#include "moe_sizes.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tilewire {

struct MoeBenchSize {
  int64_t tokens;  // of each rank
  int32_t top_k;
  int32_t experts;  // of all ranks, which have them in turn
  int64_t h, cols;
  moe_dispatch::Skew skew = moe_dispatch::Skew::uniform;
  int64_t max_tokens = 0;  // 0: what the rank with most rows gets

  const char* skew_name() const {
    using moe_dispatch::Skew;
    return skew == Skew::uniform ? "uniform" : skew == Skew::zipf ? "zipf" : "one";
  }
  std::string text() const {
    return "T " + std::to_string(tokens) + " k " + std::to_string(top_k) + " E " + std::to_string(experts) + " H " +
           std::to_string(h) + " I " + std::to_string(cols) + ", " + skew_name();
  }
};

// Whose row goes where.
struct RoutedBench {
  moe_dispatch::Routes routes;
  std::vector<std::vector<int64_t>> rows;  // of each own expert, by rank
  int64_t most_rows = 0;                   // of a rank
  int64_t sent_tokens = 0;                 // from one rank to one other node, at most

  RoutedBench(const MoeBenchSize& size, const std::vector<int32_t>& widths)
      : routes(moe_dispatch::draw_all_routes(
            size.skew, std::vector<int64_t>(std::accumulate(widths.begin(), widths.end(), size_t{0}), size.tokens),
            size.top_k, size.experts, 7)) {
    const TopologyTables tables = TopologyTables::from_layout(widths);
    const Topology topology = tables.view();
    const auto rank_of = dealt(size.experts, topology.ranks);
    for (int32_t r = 0; r < topology.ranks; ++r) {
      rows.emplace_back(static_cast<size_t>(std::count(rank_of.begin(), rank_of.end(), r)), 0);
    }
    for (int32_t r = 0; r < topology.ranks; ++r) {
      std::vector<int64_t> sent(static_cast<size_t>(topology.nodes), 0);
      for (int64_t t = 0; t < size.tokens; ++t) {
        std::set<int32_t> nodes;
        for (int32_t slot = 0; slot < size.top_k; ++slot) {
          const int32_t e = routes.expert(Rank{r}, t, slot), to = e % topology.ranks;
          ++rows[static_cast<size_t>(to)][static_cast<size_t>(e / topology.ranks)];
          nodes.insert(topology.node(Rank{to}).value);
        }
        nodes.erase(topology.node(Rank{r}).value);
        for (const int32_t n : nodes) ++sent[static_cast<size_t>(n)];
      }
      sent_tokens = std::max(sent_tokens, *std::max_element(sent.begin(), sent.end()));
    }
    for (const auto& of : rows) most_rows = std::max(most_rows, std::accumulate(of.begin(), of.end(), int64_t{0}));
  }
};

// What a decode step cannot do without: the weights that it touches are read, and its rows are written where they go.
struct BareRow {
  std::byte* to;
  const std::byte* from;
};
__global__ void __launch_bounds__(1024, 1)
    read_and_push(const uint4* weights, int64_t units, const int32_t* touched, int32_t experts, const BareRow* rows,
                  int32_t row_count, int32_t row_units, uint32_t* sink) {
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, threads = int64_t{gridDim.x} * blockDim.x;
  uint32_t all = 0;
  for (int32_t e = 0; e < experts; ++e) all |= read_units(weights + touched[e] * units, units, thread, threads);
  if (all == 0x12345678) *sink = all;
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for (auto row = static_cast<int32_t>(thread / 32); row < row_count; row += static_cast<int32_t>(threads / 32)) {
    for (int32_t i = lane; i < row_units; i += 32) {
      reinterpret_cast<uint4*>(rows[row].to)[i] = reinterpret_cast<const uint4*>(rows[row].from)[i];
    }
  }
}

class MoeBench : public BenchRanks<moe_dispatch::FusedPlan, moe_dispatch::FusedKernel> {
  using Base = BenchRanks<moe_dispatch::FusedPlan, moe_dispatch::FusedKernel>;

 public:
  using Size = MoeBenchSize;

  MoeBench(const MoeBenchSize& size, const std::vector<int32_t>& widths)
      : MoeBench(size, widths, RoutedBench(size, widths)) {}

  const MoeBenchSize& size() const { return size_; }
  int64_t sent_bytes() const { return routed_.sent_tokens * buffers(one_round()).token_pitch; }
  int64_t chunk_bytes(const Plan& plan) const { return plan.choice.chunk_tokens * buffers(plan).token_pitch; }
  const std::vector<int64_t>& rows_of_experts(int32_t r) const { return routed_.rows[static_cast<size_t>(r)]; }
  double flops() const {
    double rows = 0;
    for (const auto& of : routed_.rows) rows += static_cast<double>(std::accumulate(of.begin(), of.end(), int64_t{0}));
    return 2 * rows * static_cast<double>(size_.h) * static_cast<double>(size_.cols);
  }
  // All tokens at once, with as many CTAs as there are.
  Plan one_round() const {
    Plan plan;
    plan.choice.block_tokens = size_.tokens;
    plan.choice.window = 1;
    plan.choice.local_first = false;
    plan.choice.raster_rows = 16;
    plan.choice.workers = sms_;
    return plan;
  }

  // cuBLAS in a loop over the own experts of each rank, all ranks at once, rows gathered and with as many SMs as the kernel has.
  TimeUs cublas() {
    return [this](int count) { return time_us(count, [&](int32_t r) { multiply_experts(r); }); };
  }
  TimeUs plain() { return grouped(grouped_form<WithRoomForRows<PingPong128x128>>("pp128x128_line")); }
  // The compute role alone, by the tables of a call of one round.
  TimeUs grouped(const GroupedForm& form) {
    if (tabled_ == nullptr) {
      tabled_ = &add_kernels(one_round());
      node_.start_wire();
      for (int call = 0; call < 2; ++call) time_us(1, [&](int32_t r) { launch(*tabled_, r); });
      node_.stop_wire();
      check();
    }
    std::deque<GroupedGemm>& of_ranks = grouped_.emplace_back();
    for (int32_t r = 0; r < node_.ranks(); ++r) {
      node_.use(r);
      const Kernel& kernel = (*tabled_)[static_cast<size_t>(r)];
      const moe_dispatch::FusedParameters p = kernel.parameters(1, operands(r));
      of_ranks.emplace_back(form, kernel, p, placed_rows(r, p), weights(r), one_round().choice.raster_rows, sms_);
    }
    return [this, &of_ranks](int count) {
      return time_us(count, [&](int32_t r) { of_ranks[static_cast<size_t>(r)].launch(node_.stream(r)); });
    };
  }
  // The weights that tokens are for are read and the rows written to the ranks that get them, and nothing is told.
  TimeUs bare() {
    int64_t next_row[kMostBareRanks] = {};
    for (int32_t r = 0; r < node_.ranks(); ++r) add_bare(r, next_row);
    return [this](int count) {
      return time_us(count, [&](int32_t r) {
        const Bare& bare = bare_[static_cast<size_t>(r)];
        read_and_push<<<sms_, 1024, 0, node_.stream(r)>>>(
            reinterpret_cast<const uint4*>(at(r).w.data()), size_.h * size_.cols * 2 / 16, bare.touched.data(),
            bare.experts, bare.rows.data(), bare.row_count, static_cast<int32_t>(padded(size_.h) * 2 / 16),
            bare.sink.data());
      });
    };
  }

 private:
  static constexpr int32_t kMostBareRanks = 8;

  struct Member {
    DeviceBuffer<Bf16> x, w, gathered, out;
    DeviceBuffer<int32_t> ids, origins;
    DeviceBuffer<int64_t> offsets;
  };
  struct Bare {
    DeviceBuffer<int32_t> touched;
    int32_t experts;
    DeviceBuffer<BareRow> rows;
    int32_t row_count;
    DeviceBuffer<uint32_t> sink{1};
  };

  MoeBench(const MoeBenchSize& size, const std::vector<int32_t>& widths, RoutedBench routed)
      : Base(widths, half_bytes(problem_of(size, widths, routed), widths), problem_of(size, widths, routed), true),
        size_(size),
        routed_(std::move(routed)) {
    for (int32_t r = 0; r < node_.ranks(); ++r) add_rank(r);
    finish_preparing();
  }

  static moe_dispatch::Problem problem_of(const MoeBenchSize& size, const std::vector<int32_t>& widths,
                                          const RoutedBench& routed) {
    const int64_t most = size.max_tokens > 0 ? size.max_tokens : routed.most_rows;
    moe_dispatch::Problem p{.rank_of_expert = dealt(size.experts, std::accumulate(widths.begin(), widths.end(), 0)),
                            .h = size.h,
                            .top_k = size.top_k,
                            .most_rows = most,
                            .cols = size.cols,
                            .result_rows = most};
    p.most_tokens = p.planned_tokens = size.tokens;
    return p;
  }
  // Of one round, or of two halves that both have room; and some for what several have beside their rows.
  static int64_t half_bytes(const moe_dispatch::Problem& problem, const std::vector<int32_t>& widths) {
    const TopologyTables topology = TopologyTables::from_layout(widths);
    PlanContext context{.topology = topology.view(), .me = Rank{0}, .arena = {}, .machine = {}};
    context.arena.flags = {.ranks = topology.view().ranks, .max_chunks = kBenchChunks};
    int64_t bytes = 0;
    for (const int64_t rounds : {1, 2}) {
      Plan plan;
      plan.choice.block_tokens = div_up(problem.planned_tokens, rounds);
      plan.choice.window = rounds;
      bytes = std::max(bytes, buffers_of(problem, plan.choice, context).end());
    }
    return bytes + (int64_t{64} << 20);
  }

  const Member& at(int32_t r) const { return ranks_[static_cast<size_t>(r)]; }
  int64_t own_experts(int32_t r) const { return static_cast<int64_t>(routed_.rows[static_cast<size_t>(r)].size()); }
  moe_dispatch::Buffers buffers(const Plan& plan) const { return buffers_of(problem_, plan.choice, context()); }
  SlotArray weights(int32_t r) const {
    return {at(r).w.data(), own_experts(r),           size_.h,       size_.cols,
            size_.cols * 2, size_.h * size_.cols * 2, DataType::bf16};
  }
  // Where the rows of each second call lie.
  DeviceMatrix placed_rows(int32_t r, const moe_dispatch::FusedParameters& p) const {
    const moe_dispatch::Buffers& b = p.schedule.buffers;
    return {node_.rank(r, 0).arenas[static_cast<size_t>(r)] + node_.layout().half_offset(1) + b.rows_offset(0, 0),
            b.slot_rows, size_.h, b.row_pitch, DataType::bf16};
  }

  void add_rank(int32_t r) {
    node_.use(r);
    const int64_t most = problem_.most_rows, experts = own_experts(r);
    const auto count = [](int64_t elements) { return std::max<int64_t>(1, elements); };
    const Member& rank =
        ranks_.emplace_back(Member{DeviceBuffer<Bf16>(count(size_.tokens * padded(size_.h))),
                                   DeviceBuffer<Bf16>(count(experts * size_.h * size_.cols)),
                                   DeviceBuffer<Bf16>(count(routed_.most_rows * padded(size_.h))),
                                   DeviceBuffer<Bf16>(count(std::max(most, routed_.most_rows) * padded(size_.cols))),
                                   DeviceBuffer<int32_t>(size_.tokens * size_.top_k), DeviceBuffer<int32_t>(3 * most),
                                   DeviceBuffer<int64_t>(experts + 1)});
    const auto seed = static_cast<uint32_t>(r);
    fill(rank.x, size_.tokens, size_.h, seed);
    fill(rank.gathered, routed_.most_rows, size_.h, seed + 100);
    fill(rank.w, experts * size_.h, size_.cols, seed + 200);
    const std::vector<int32_t>& ids = routed_.routes.ids[static_cast<size_t>(r)];
    check_cuda(cudaMemcpy(rank.ids.data(), ids.data(), ids.size() * sizeof(int32_t), cudaMemcpyHostToDevice), "routes");
  }
  static void fill(const DeviceBuffer<Bf16>& to, int64_t rows, int64_t cols, uint32_t seed) {
    fill_matrix<<<512, 256>>>(to.data(), rows, cols, padded(cols), MatrixContent::random, seed);
  }
  void add_bare(int32_t r, int64_t* next_row) {
    node_.use(r);
    std::vector<int32_t> touched;
    for (int32_t e = 0; e < own_experts(r); ++e) {
      if (routed_.rows[static_cast<size_t>(r)][static_cast<size_t>(e)] > 0) touched.push_back(e);
    }
    std::vector<BareRow> rows;
    const moe_dispatch::Buffers b = buffers(one_round());
    for (int64_t t = 0; t < size_.tokens; ++t) {
      for (int32_t slot = 0; slot < size_.top_k; ++slot) {
        const int32_t to = routed_.routes.expert(Rank{r}, t, slot) % node_.ranks();
        rows.push_back({node_.rank(r, 0).arenas[static_cast<size_t>(to)] + node_.layout().half_offset(1) +
                            b.rows_offset(0, 0) + next_row[to]++ * b.row_pitch,
                        reinterpret_cast<const std::byte*>(at(r).x.data() + t * padded(size_.h))});
      }
    }
    const Bare& bare = bare_.emplace_back(
        Bare{DeviceBuffer<int32_t>(std::max<int64_t>(1, std::ssize(touched))), static_cast<int32_t>(touched.size()),
             DeviceBuffer<BareRow>(std::ssize(rows)), static_cast<int32_t>(rows.size())});
    check_cuda(
        cudaMemcpy(bare.touched.data(), touched.data(), touched.size() * sizeof(int32_t), cudaMemcpyHostToDevice),
        "touched experts");
    check_cuda(cudaMemcpy(bare.rows.data(), rows.data(), rows.size() * sizeof(BareRow), cudaMemcpyHostToDevice),
               "bare rows");
  }

  Kernel::Operands operands(int32_t r) const override {
    const Member& rank = at(r);
    return {.x = {rank.x.data(), size_.tokens, size_.h, padded(size_.h) * 2, DataType::bf16},
            .routes = {.ids = rank.ids.data(), .token_stride = size_.top_k},
            .w = weights(r),
            .out = {rank.out.data(), problem_.result_rows, size_.cols, padded(size_.cols) * 2, DataType::bf16},
            .origins = rank.origins.data(),
            .offsets = rank.offsets.data()};
  }
  void multiply_experts(int32_t r) const {
    const Member& rank = at(r);
    int64_t row = 0;
    for (int64_t e = 0; e < own_experts(r); ++e) {
      const int64_t rows = routed_.rows[static_cast<size_t>(r)][static_cast<size_t>(e)];
      if (rows == 0) continue;
      const auto part = [&](const DeviceBuffer<Bf16>& of, int64_t cols) {
        return DeviceMatrix{of.data() + row * padded(cols), rows, cols, padded(cols) * 2, DataType::bf16};
      };
      const DeviceMatrix w{rank.w.data() + e * size_.h * size_.cols, size_.h, size_.cols, size_.cols * 2,
                           DataType::bf16};
      multiply(r, part(rank.gathered, size_.h), w, part(rank.out, size_.cols));
      row += rows;
    }
  }

  MoeBenchSize size_;
  RoutedBench routed_;
  std::deque<Member> ranks_;
  std::deque<Bare> bare_;
  std::deque<std::deque<GroupedGemm>> grouped_;  // of each form, by rank
  const std::deque<Kernel>* tabled_ = nullptr;
};

}  // namespace tilewire

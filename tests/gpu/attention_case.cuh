// One ring attention of a virtual cluster, with random values, each element checked.
#pragma once

#include "base/bytes.h"
#include "attention_check.cuh"
#include "fused_calls.cuh"
#include "virtual_cluster.cuh"

#include "ops/attention/device_launch.cuh"
#include "ops/attention/device_parameters.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace tilewire {

struct AttentionSize {
  std::string name;
  std::vector<int64_t> rows;       // of q, by rank
  std::vector<int64_t> kv_rows{};  // of k and v; none: as q
  int64_t batch = 1, q_heads = 4, kv_heads = 4, head_dim = 128;
  DataType type = DataType::bf16;
  bool is_causal = false;
  attention::Placement placement = attention::Placement::contiguous;
  std::vector<int64_t> documents{};                       // of queries and of keys
  bool is_shuffled = false;                               // positions are given: those of all ranks in stripes
  std::vector<attention::Positions> given{}, given_kv{};  // or these
  int64_t chunk_rows = 128, window = 0;
  int32_t group_pairs = 2, ctas = 12;
  bool is_fused = true;
  uint32_t pace_clocks = 0;
  std::vector<int32_t> widths{};  // ranks of each node; none: one node
  Personality personality = Personality::rc;
  double network_bytes_per_s = 0;  // of a rank; 0: without a limit
  float spread = 1;                // of queries
  int64_t pad = 0;                 // elements behind each head of a row
};

__global__ void advance_attention_salt(int64_t* salt, uint64_t seed, uint32_t most_delay_us) {
  ++*salt;
  const uint64_t wait_us = mixed(static_cast<uint32_t>(*salt) * 31 + static_cast<uint32_t>(seed)) % (most_delay_us + 1);
  const uint64_t end_ns = ptx::global_timer_ns() + wait_us * 1000;
  while (ptx::global_timer_ns() < end_ns) __nanosleep(200);
}

class AttentionCase {
 public:
  AttentionCase(const AttentionSize& size, Epoch first, uint64_t timeout_ns)
      : size_(size), problem_(problem_of(size)), cluster_(cluster_size(size, problem_, first)) {
    for (int32_t r = 0; r < ranks(); ++r) add_rank(r, timeout_ns);
  }

  static attention::Problem problem_of(const AttentionSize& s) {
    attention::Problem problem{
        .rows = s.rows,
        .kv_rows = kv_rows(s),
        .batch = s.batch,
        .q_heads = s.q_heads,
        .kv_heads = s.kv_heads,
        .head_dim = s.head_dim,
        .dtype = s.type,
        .is_causal = s.is_causal,
        .placement = s.is_shuffled || !s.given.empty() ? attention::Placement::given : s.placement,
        .given = s.given,
        .given_kv = s.given_kv,
        .documents = s.documents,
        .kv_documents = s.documents,
        .out_dtype = s.type};
    if (s.is_shuffled) {
      problem.given = striped(problem.rows);
      problem.given_kv = striped(problem.kv_rows);
    }
    problem.validate();
    return problem;
  }
  int32_t ranks() const { return static_cast<int32_t>(size_.rows.size()); }
  const VirtualCluster& cluster() const { return cluster_; }
  const attention::FusedKernel& kernel(int32_t r) const { return at(r).kernel; }
  const attention::Problem& problem() const { return problem_; }

  // New inputs, poison everywhere else: NaN, and `out_fill` in each byte of the results.
  void prepare(Epoch epoch, int out_fill = 0xff) {
    cluster_.poison_half(epoch);
    for (int32_t r = 0; r < ranks(); ++r) {
      PerRank& rank = *ranks_[static_cast<size_t>(r)];
      cluster_.use(r);
      rank.out.fill_bytes(out_fill);
      rank.lse.fill_bytes(out_fill);
    }
    set_salt(static_cast<int64_t>(epoch % 1000));
  }
  attention::FusedParameters parameters(int32_t r, uint64_t agreed_hash = 77) const {
    return kernel(r).parameters(agreed_hash, operands(r));
  }
  void launch(int32_t r, attention::FusedParameters parameters) const {
    cluster_.start_wire();
    enqueue(r, parameters);
  }
  void enqueue(int32_t r, attention::FusedParameters parameters) const {
    cluster_.use(r);
    kernel(r).launch(parameters, cluster_.stream(r));
  }
  void run(Epoch epoch) { run_call(*this, epoch); }
  void wait() const {
    cluster_.wait();
    cluster_.stop_wire();
  }

  // The inputs of that call, in all ranks.
  void set_salt(int64_t salt) {
    for (int32_t r = 0; r < ranks(); ++r) {
      cluster_.use(r);
      check_cuda(cudaMemcpy(at(r).salt.data(), &salt, sizeof(salt), cudaMemcpyHostToDevice), "setting inputs");
      fill(r, at(r).salt.data(), 264);
      check_cuda(cudaStreamSynchronize(cluster_.stream(r)), "writing inputs");
    }
  }
  void enqueue_inputs(int32_t r, int64_t* salt, uint32_t most_delay_us) const {
    cluster_.use(r);
    advance_attention_salt<<<1, 1, 0, cluster_.stream(r)>>>(salt, static_cast<uint64_t>(r), most_delay_us);
    fill(r, salt, 2);  // beside kernels that wait
  }

  int64_t count_wrong(Epoch) {
    int64_t wrong = count_records(cluster_);
    for (int32_t r = 0; r < ranks(); ++r) wrong += count_wrong_of(r);
    return wrong;
  }
  // All bits of the results of a rank.
  std::vector<uint16_t> out(int32_t r) const { return at(r).out.to_host(); }
  std::vector<float> lse(int32_t r) const { return at(r).lse.to_host(); }
  // Elements of a rank's result that are numbers.
  int64_t count_numbers(int32_t r) const {
    int64_t numbers = 0;
    const uint16_t exponent = size_.type == DataType::bf16 ? 0x7f80 : 0x7c00;
    for (const uint16_t bits : out(r)) numbers += (bits & exponent) != exponent && bits != 0x1111 ? 1 : 0;
    return numbers;
  }
  float worst_out() const { return worst_out_; }
  float worst_lse() const { return worst_lse_; }
  double flops(int32_t r) const {  // of scores that are seen, two products each
    double seen = 0;
    const attention::MaskRule mask = problem_.mask();
    std::vector<int64_t> keys;
    for (const auto& p : problem_.kv_positions()) {
      for (const int64_t position : attention::expanded(p)) keys.push_back(position);
    }
    std::sort(keys.begin(), keys.end());
    for (const int64_t position : attention::expanded(problem_.positions()[static_cast<size_t>(r)])) {
      const attention::KeySpan span = mask.span_of(position);
      seen += static_cast<double>(std::lower_bound(keys.begin(), keys.end(), span.end) -
                                  std::lower_bound(keys.begin(), keys.end(), span.begin));
    }
    return seen * 4 * static_cast<double>(size_.batch * size_.q_heads * size_.head_dim);
  }

 private:
  static constexpr int64_t kGuard = 64;
  static constexpr int kCheckBlocks = 1024;

  struct PerRank {
    attention::FusedKernel kernel;
    DeviceBuffer<uint16_t> q, k, v, out;
    DeviceBuffer<float> lse;
    DeviceBuffer<int64_t> salt{1};
    CheckedHeads q_heads, k_heads, v_heads, out_heads;
    std::vector<attention::KeySpan> spans;
  };

  static std::vector<int64_t> kv_rows(const AttentionSize& s) { return s.kv_rows.empty() ? s.rows : s.kv_rows; }
  // Rank r has every position that is r modulo the ranks, as long as it has rows.
  static std::vector<attention::Positions> striped(const std::vector<int64_t>& rows) {
    std::vector<std::vector<int64_t>> positions(rows.size());
    const int64_t total = std::accumulate(rows.begin(), rows.end(), int64_t{0});
    for (int64_t next = 0, turn = 0; next < total; ++turn) {
      auto& of = positions[static_cast<size_t>(turn) % rows.size()];
      if (static_cast<int64_t>(of.size()) < rows[static_cast<size_t>(turn) % rows.size()]) of.push_back(next++);
    }
    std::vector<attention::Positions> runs;
    for (const auto& of : positions) runs.push_back(attention::runs_of(of));
    return runs;
  }
  static VirtualClusterSize cluster_size(const AttentionSize& s, const attention::Problem& p, Epoch first) {
    VirtualClusterSize cluster{.widths = s.widths, .first = first};
    const int64_t most = *std::max_element(p.kv_rows.begin(), p.kv_rows.end());
    cluster.max_chunks =
        static_cast<int32_t>(std::max<int64_t>(64, p.pairs() * ((most + s.chunk_rows - 1) / s.chunk_rows)));
    cluster.half_bytes = (p.total_kv_rows() + most) * p.pairs() * p.kv_row_bytes() + 4096;
    if (cluster.widths.empty()) cluster.widths = {static_cast<int32_t>(s.rows.size())};
    cluster.network = {.personality = s.personality,
                       .bandwidth_bytes_per_s = s.network_bytes_per_s,
                       .latency = std::chrono::microseconds(5),
                       .seed = first};
    return cluster;
  }

  const PerRank& at(int32_t r) const { return *ranks_[static_cast<size_t>(r)]; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(size_.head_dim)); }
  HeadsView view(const CheckedHeads& h) const {
    return {h.data,    h.batch, h.rows,    h.heads, h.dim, h.rows * h.heads * h.pitch(), h.heads * h.pitch(),
            h.pitch(), 1,       size_.type};
  }
  attention::FusedOperands operands(int32_t r) const {
    const PerRank& rank = at(r);
    return {.q = view(rank.q_heads),
            .k = view(rank.k_heads),
            .v = view(rank.v_heads),
            .out = view(rank.out_heads),
            .log_sums = rank.lse.data(),
            .log_sum_pitch = rank.q_heads.rows,
            .scale = static_cast<float>(scale())};
  }
  void fill(int32_t r, const int64_t* salt, uint32_t blocks) const {
    for (const CheckedHeads& h : {at(r).q_heads, at(r).k_heads, at(r).v_heads}) {
      if (h.elements() > 0) fill_heads<<<blocks, 256, 0, cluster_.stream(r)>>>(h, size_.type, salt);
    }
    check_cuda(cudaGetLastError(), "writing inputs");
  }

  void add_rank(int32_t r, uint64_t timeout_ns) {
    cluster_.use(r);
    PlanContext context = cluster_.context(r);
    context.workers = size_.ctas;
    const AttentionForm& form = attention::fused_form(size_.head_dim);
    const attention::PlanChoice choice{
        .chunk_rows = round_up(size_.chunk_rows, std::lcm(int64_t{form.step}, attention::kKeyBlock)),
        .window = size_.window,
        .is_fused = size_.is_fused,
        .tile_rows = form.rows,
        .group_pairs = size_.group_pairs,
        .workers = size_.ctas,
        .cursors = {}};
    const auto rows = size_.rows[static_cast<size_t>(r)], keys = problem_.kv_rows[static_cast<size_t>(r)];
    const auto heads = [&](int64_t count, int64_t of, uint32_t tensor, float spread) {
      return CheckedHeads{nullptr,
                          size_.batch,
                          count,
                          of,
                          size_.head_dim,
                          size_.pad,
                          tensor * 1000003u + static_cast<uint32_t>(r) * 101u,
                          spread};
    };
    CheckedHeads q = heads(rows, size_.q_heads, 1, size_.spread), k = heads(keys, size_.kv_heads, 2, 1),
                 v = heads(keys, size_.kv_heads, 3, 1), out = q;
    ranks_.push_back(std::make_unique<PerRank>(
        PerRank{attention::FusedKernel(problem_, {choice, size_.pace_clocks}, context, cluster_.rank(r, timeout_ns)),
                DeviceBuffer<uint16_t>(q.elements() + kGuard),
                DeviceBuffer<uint16_t>(k.elements() + kGuard),
                DeviceBuffer<uint16_t>(v.elements() + kGuard),
                DeviceBuffer<uint16_t>(out.elements() + kGuard),
                DeviceBuffer<float>(size_.batch * size_.q_heads * rows + kGuard),
                DeviceBuffer<int64_t>(1),
                {},
                {},
                {},
                {},
                {}}));
    PerRank& rank = *ranks_.back();
    q.data = rank.q.data();
    k.data = rank.k.data();
    v.data = rank.v.data();
    out.data = rank.out.data();
    rank.q_heads = q;
    rank.k_heads = k;
    rank.v_heads = v;
    rank.out_heads = out;
    const attention::MaskRule mask = problem_.mask();
    for (const int64_t position : attention::expanded(problem_.positions()[static_cast<size_t>(r)])) {
      rank.spans.push_back(mask.span_of(position));
    }
  }

  template <class T>
  static DeviceBuffer<T> uploaded(const std::vector<T>& values) {
    DeviceBuffer<T> buffer(std::max<int64_t>(1, static_cast<int64_t>(values.size())));
    check_cuda(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
               "uploading");
    return buffer;
  }
  int64_t count_wrong_of(int32_t r) {
    const PerRank& rank = at(r);
    cluster_.use(r);
    if (rank.q_heads.elements() == 0) return 0;
    std::vector<CheckedHeads> k, v;
    std::vector<int64_t> begin{0}, positions;
    for (int32_t p = 0; p < ranks(); ++p) {
      k.push_back(at(p).k_heads);
      v.push_back(at(p).v_heads);
      begin.push_back(begin.back() + at(p).k_heads.rows);
      for (const int64_t position : attention::expanded(problem_.kv_positions()[static_cast<size_t>(p)])) {
        positions.push_back(position);
      }
    }
    const DeviceBuffer<CheckedHeads> keys = uploaded(k), values = uploaded(v);
    const DeviceBuffer<int64_t> begins = uploaded(begin), places = uploaded(positions);
    const DeviceBuffer<attention::KeySpan> spans = uploaded(rank.spans);
    const DeviceBuffer<double> weights(kCheckBlocks * std::max<int64_t>(1, begin.back()));
    const DeviceBuffer<AttentionFindings> findings = uploaded(std::vector<AttentionFindings>(1));
    check_attention<<<kCheckBlocks, 128>>>(rank.q_heads, rank.out_heads, rank.lse.data(),
                                           {keys.data(), values.data(), begins.data(), places.data(), ranks()},
                                           spans.data(), scale(), size_.type, weights.data(), findings.data());
    check_cuda(cudaGetLastError(), "checking attention");
    const AttentionFindings found = findings.to_host()[0];
    worst_out_ = std::max(worst_out_, float_of(found.worst_out));
    worst_lse_ = std::max(worst_lse_, float_of(found.worst_lse));
    int64_t wrong = static_cast<int64_t>(found.wrong) + count_outside(r);
    if (found.place >= 0) print_element(r, found);
    if (found.lse_place >= 0) {
      std::printf("  rank %d lse [head %lld, row %lld] is %g, not %g\n", r,
                  static_cast<long long>(found.lse_place / rank.q_heads.rows),
                  static_cast<long long>(found.lse_place % rank.q_heads.rows), found.lse_got, found.lse_want);
    }
    return wrong;
  }
  static float float_of(unsigned long long found) {
    const auto bits = static_cast<uint32_t>(found >> 32);
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
  }
  void print_element(int32_t r, const AttentionFindings& found) const {
    const CheckedHeads& h = at(r).out_heads;
    const int64_t column = found.place % h.pitch(), head = found.place / h.pitch() % h.heads,
                  row = found.place / h.pitch() / h.heads % h.rows, batch = found.place / h.pitch() / h.heads / h.rows;
    std::printf(
        "  rank %d out [%lld, row %lld, head %lld, column %lld] is %g, not %g; %llu wrong, worst %g tolerances\n", r,
        static_cast<long long>(batch), static_cast<long long>(row), static_cast<long long>(head),
        static_cast<long long>(column), found.got, found.want, found.wrong, float_of(found.worst_out));
  }
  // What nobody may write: behind the results, and between heads.
  int64_t count_outside(int32_t r) const {
    const CheckedHeads& h = at(r).out_heads;
    const std::vector<uint16_t> seen = out(r);
    int64_t wrong = 0;
    for (size_t i = 0; i < seen.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      if (place < h.elements() && place % h.pitch() < h.dim) continue;
      wrong += seen[i] == 0xffff ? 0 : 1;
    }
    if (wrong > 0)
      std::printf("  rank %d: %lld elements beside the result were written\n", r, static_cast<long long>(wrong));
    return wrong;
  }

  AttentionSize size_;
  attention::Problem problem_;
  VirtualCluster cluster_;
  std::vector<std::unique_ptr<PerRank>> ranks_;
  float worst_out_ = 0, worst_lse_ = 0;
};

}  // namespace tilewire

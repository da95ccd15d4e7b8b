// One call of an op that sums products over ranks, on a virtual cluster, with coded values (coded_values.h): products are
// exact, so that the roundings that the reference makes give every bit of a result.
//
// An Op says what is its own:
//   Problem, Plan, Kernel, Operands, Parameters   its types
//   problem(size, rank), half_bytes(problem, plan, context), set(plan, size)
//   first_row(size, rank), rows(size, rank)       of the whole sum, those that the rank gets
//   bias_of(rank)                                 whose bias is added to them
//   is_result(flags, word)                        whether the word says that a finished chunk has come
#pragma once

#include "fused_calls.cuh"
#include "fused_inputs.cuh"
#include "reduction_values.h"
#include "result_buffer.cuh"
#include "virtual_cluster.cuh"

#include "device/tile/tile_form.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

namespace tilewire {

template <class OpOfCase>
class ReductionCase {
 public:
  using Op = OpOfCase;
  using Operands = typename Op::Operands;
  using Parameters = typename Op::Parameters;

  ReductionCase(const ReductionSize& size, Epoch first, uint64_t timeout_ns)
      : size_(size), reference_(std::make_unique<ReductionReference>(size)), cluster_(cluster_size(size, first)) {
    for (int32_t r = 0; r < ranks(); ++r) add_rank(r, timeout_ns);
  }

  int32_t ranks() const { return static_cast<int32_t>(size_.rows.size()); }
  int64_t total_rows() const { return rows_before(size_, ranks()); }
  int64_t own_rows(int32_t r) const { return Op::rows(size_, r); }
  const VirtualCluster& cluster() const { return cluster_; }
  const typename Op::Kernel& kernel(int32_t r) const { return ranks_[static_cast<size_t>(r)]->kernel; }

  // New inputs, poison everywhere else: NaN, and `out_fill` in each byte of the results.
  void prepare(Epoch epoch, int out_fill = 0xff) {
    salt_ = static_cast<int64_t>(epoch % 1000);
    cluster_.poison_half(epoch);
    for (int32_t r = 0; r < ranks(); ++r) {
      PerRank& rank = *ranks_[static_cast<size_t>(r)];
      cluster_.use(r);
      std::vector<uint16_t> a(static_cast<size_t>(rank.a.count()), kPoisonBits);
      for (int64_t row = 0; row < total_rows(); ++row) {
        for (int64_t i = 0; i < depth(r); ++i) {
          a[static_cast<size_t>(row * padded(depth(r)) + i)] = bits_of(coded_factor(r, row, i, salt_), size_.type);
        }
      }
      upload(rank.a, a);
      rank.out.fill_bytes(out_fill);
      check_cuda(cudaDeviceSynchronize(), "preparing");
    }
  }

  Parameters parameters(int32_t r, uint64_t agreed_hash = 77) const {
    return kernel(r).parameters(agreed_hash, operands(r));
  }
  Operands operands(int32_t r) const { return ranks_[static_cast<size_t>(r)]->operands; }
  void launch(int32_t r, Parameters parameters) const {
    cluster_.start_wire();
    enqueue(r, parameters);
  }
  void enqueue(int32_t r, Parameters parameters) const {
    cluster_.use(r);
    kernel(r).launch(parameters, cluster_.stream(r));
  }
  void run(Epoch epoch) { run_call(*this, epoch); }
  void wait() const {
    cluster_.wait();
    cluster_.stop_wire();
  }

  void set_salt(int64_t salt) { salt_ = salt; }
  void enqueue_inputs(int32_t r, int64_t* salt, uint32_t most_delay_us) const {
    cluster_.use(r);
    const CodedShard shard{.a = ranks_[static_cast<size_t>(r)]->a.data(),
                           .first = kRowsOfRank * r,
                           .rows = total_rows(),
                           .k = depth(r),
                           .pitch = padded(depth(r))};
    enqueue_next_inputs(shard, salt, most_delay_us, cluster_.stream(r));
  }

  // Wrong elements of all ranks, and of what lies beside them. The first ones are printed.
  int64_t count_wrong(Epoch) {
    int64_t wrong = count_records(cluster_);
    for (int32_t r = 0; r < ranks(); ++r) wrong += count_wrong_out(r);
    return wrong;
  }

  // In the bits of the output's type, [own rows, n].
  std::vector<uint32_t> expected(int32_t r) const {
    return reference_->expected(salt_, Op::first_row(size_, r), own_rows(r), Op::bias_of(r));
  }
  // The bits of [own rows + guard, pitch].
  std::vector<uint32_t> out(int32_t r) const { return ranks_[static_cast<size_t>(r)]->out.to_host(); }
  int64_t out_pitch() const { return padded(size_.n) + size_.out_padding; }
  bool is_nan(uint32_t bits) const { return is_nan_of(bits, size_.out); }

 private:
  static constexpr int64_t kGuardRows = 3;

  struct PerRank {
    typename Op::Kernel kernel;
    DeviceBuffer<uint16_t> a, b;
    ResultBuffer out;
    DeviceBuffer<float> bias, residual;
    Operands operands;
  };

  static typename Op::Plan plan_of(const ReductionSize& size, int32_t r, PlanContext context) {
    context.workers = size.ctas;
    typename Op::Plan plan = make_plan<typename Op::Plan>(Op::problem(size, r), context).choice;
    if (size.tile_rows != 0) {
      plan.tile_rows = size.tile_rows;
      plan.tile_cols = size.tile_cols;
      plan.choice.workers = size.ctas / 2;
    }
    if (size.chunk_rows != 0) {
      plan.choice.chunk_rows = size.chunk_rows;
      plan.choice.chunk_cols = size.chunk_cols;
    }
    if (size.window >= 0) plan.choice.window = size.window;
    if (size.reduce_workers != 0) plan.choice.reduce_workers = size.reduce_workers;
    plan.choice.is_fused = size.is_fused;
    Op::set(plan, size);
    return plan;
  }
  static VirtualClusterSize cluster_size(const ReductionSize& size, Epoch first) {
    VirtualClusterSize cluster{.widths = widths_of(size), .max_chunks = 512, .first = first};
    const TopologyTables topology = TopologyTables::from_layout(cluster.widths);
    PlanContext context{.topology = topology.view(), .me = Rank{0}, .arena = {}, .machine = {}};
    context.arena.flags = {.ranks = topology.view().ranks, .max_chunks = cluster.max_chunks};
    context.arena.half_stride_bytes = int64_t{1} << 40;
    // The real context may choose other chunks.
    cluster.half_bytes =
        2 * Op::half_bytes(Op::problem(size, 0), plan_of(size, 0, context), context) + (int64_t{1} << 20);
    cluster.network = {.personality = size.personality, .latency = std::chrono::microseconds(5), .seed = first};
    return cluster;
  }

  int64_t depth(int32_t r) const { return depth_of(size_, r); }
  template <class T>
  static void upload(const DeviceBuffer<T>& to, const std::vector<T>& from) {
    check_cuda(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "uploading");
  }
  void add_rank(int32_t r, uint64_t timeout_ns) {
    cluster_.use(r);
    const PlanContext context = cluster_.context(r);
    const int64_t k = depth(r), n = size_.n, rows = own_rows(r);
    const int64_t b_rows = size_.is_b_n_major ? k : n, b_cols = size_.is_b_n_major ? n : k, pitch = padded(b_cols) + 8;
    const auto count = [](int64_t elements) { return std::max<int64_t>(1, elements); };
    ranks_.push_back(std::make_unique<PerRank>(
        PerRank{typename Op::Kernel(Op::problem(size_, r), plan_of(size_, r, context), context,
                                    cluster_.rank(r, timeout_ns), size_.is_b_n_major),
                DeviceBuffer<uint16_t>(count(total_rows() * padded(k))),
                DeviceBuffer<uint16_t>(count(b_rows * pitch)),
                ResultBuffer(rows + kGuardRows, out_pitch(), size_.out),
                DeviceBuffer<float>(count(n)),
                DeviceBuffer<float>(count(rows * n)),
                {}}));
    PerRank& rank = *ranks_.back();
    std::vector<uint16_t> b(static_cast<size_t>(rank.b.count()), kPoisonBits);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        b[static_cast<size_t>(size_.is_b_n_major ? i * pitch + c : c * pitch + i)] =
            bits_of(coded_b(r, 0, i, c), size_.type);
      }
    }
    upload(rank.b, b);
    rank.operands.a = {rank.a.data(), total_rows(), k, padded(k) * 2, size_.type};
    rank.operands.b = {rank.b.data(), b_rows, b_cols, pitch * 2, size_.type};
    rank.operands.out = {rank.out.data(), rows, n, out_pitch(), 1, size_.out};
    if (size_.has_bias) add_bias(rank, r);
    if (size_.has_residual) add_residual(rank, r);
  }
  void add_bias(PerRank& rank, int32_t r) {
    std::vector<float> bias(static_cast<size_t>(size_.n));
    for (int64_t c = 0; c < size_.n; ++c)
      bias[static_cast<size_t>(c)] = static_cast<float>(coded_bias(Op::bias_of(r), 0, c));
    upload(rank.bias, bias);
    rank.operands.bias = rank.bias.data();
  }
  // Column by column, so that strides count.
  void add_residual(PerRank& rank, int32_t r) {
    const int64_t rows = own_rows(r);
    std::vector<float> residual(static_cast<size_t>(rows * size_.n));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < size_.n; ++c) residual[static_cast<size_t>(c * rows + row)] = coded_residual(row, c);
    }
    upload(rank.residual, residual);
    rank.operands.residual = MatrixView{rank.residual.data(), rows, size_.n, 1, rows, DataType::fp32};
  }

  int64_t count_wrong_out(int32_t r) const {
    const std::vector<uint32_t> seen = out(r), right = expected(r);
    int64_t wrong = 0;
    for (int64_t row = 0; row < own_rows(r) + kGuardRows; ++row) {
      for (int64_t c = 0; c < out_pitch(); ++c) {
        const uint32_t got = seen[static_cast<size_t>(row * out_pitch() + c)];
        const bool is_result = row < own_rows(r) && c < size_.n;
        const uint32_t expected = is_result ? right[static_cast<size_t>(row * size_.n + c)] : poison_bits(size_.out);
        if (got != expected && wrong++ < 3) {
          std::printf("  rank %d out [%lld, %lld] is %08x, not %08x\n", r, static_cast<long long>(row),
                      static_cast<long long>(c), got, expected);
        }
      }
    }
    return wrong;
  }

  ReductionSize size_;
  std::unique_ptr<ReductionReference> reference_;
  VirtualCluster cluster_;
  std::vector<std::unique_ptr<PerRank>> ranks_;
  int64_t salt_ = 0;
};

}  // namespace tilewire

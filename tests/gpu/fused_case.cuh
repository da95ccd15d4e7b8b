// One AllGather+GEMM of a virtual cluster, with coded values (coded_values.h).
#pragma once

#include "coded_values.h"
#include "fused_calls.cuh"
#include "fused_inputs.cuh"
#include "fused_sizes.h"
#include "result_buffer.cuh"
#include "virtual_cluster.cuh"

#include "device/tile/tile_form.h"
#include "ops/ag_gemm/device_launch.cuh"
#include "ops/ag_gemm/device_parameters.cuh"
#include "ops/ag_gemm/reference.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

namespace tilewire {

class FusedCase {
 public:
  static constexpr uint16_t kPoison = kPoisonBits;

  FusedCase(const FusedSize& size, Epoch first, uint64_t timeout_ns)
      : size_(size), cluster_(cluster_size(size, first)) {
    for (int32_t r = 0; r < ranks(); ++r) add_rank(r, timeout_ns);
  }

  int32_t ranks() const { return static_cast<int32_t>(size_.rows.size()); }
  int64_t total_rows() const {
    int64_t sum = 0;
    for (const int64_t rows : size_.rows) sum += rows;
    return sum;
  }
  const VirtualCluster& cluster() const { return cluster_; }
  const ag_gemm::FusedKernel& kernel(int32_t r) const { return ranks_[static_cast<size_t>(r)]->kernel; }

  // New inputs, poison everywhere else: NaN, and `out_fill` in each byte of the results.
  void prepare(Epoch epoch, int out_fill = 0xff) {
    salt_ = static_cast<int64_t>(epoch % 1000);
    cluster_.poison_half(epoch);
    int64_t first_row = 0;
    for (int32_t r = 0; r < ranks(); ++r) {
      PerRank& rank = *ranks_[static_cast<size_t>(r)];
      cluster_.use(r);
      const int64_t rows = size_.rows[static_cast<size_t>(r)], pitch = a_pitch();
      std::vector<uint16_t> a(static_cast<size_t>(std::max<int64_t>(1, rows * pitch)), kPoison);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < size_.k; ++i) a[static_cast<size_t>(row * pitch + i)] = bits(a_at(first_row + row, i));
      }
      upload(rank.a, a);
      for (ResultBuffer& out : rank.out) out.fill_bytes(out_fill);
      rank.gathered.fill_bytes(out_fill);
      first_row += rows;
      check_cuda(cudaDeviceSynchronize(), "preparing");
    }
  }

  ag_gemm::FusedParameters parameters(int32_t r, uint64_t agreed_hash = 77) const {
    return kernel(r).parameters(agreed_hash, operands(r));
  }
  void launch(int32_t r, ag_gemm::FusedParameters parameters) const {
    cluster_.start_wire();
    enqueue(r, parameters);
  }
  // The same in a capture.
  void enqueue(int32_t r, ag_gemm::FusedParameters parameters) const {
    cluster_.use(r);
    kernel(r).launch(parameters, cluster_.stream(r));
    kernel(r).copy_gathered(operands(r), cluster_.stream(r));
  }

  void run(Epoch epoch) { run_call(*this, epoch); }
  // Nodes are joined from the first launch on.
  void wait() const {
    cluster_.wait();
    cluster_.stop_wire();
  }

  // For calls whose inputs a kernel writes: what it is told, and what the results are compared with. Before that it waits
  // for a random time.
  void set_salt(int64_t salt) { salt_ = salt; }
  void enqueue_inputs(int32_t r, int64_t* salt, uint32_t most_delay_us) const {
    int64_t first = 0;
    for (int32_t before = 0; before < r; ++before) first += size_.rows[static_cast<size_t>(before)];
    cluster_.use(r);
    const CodedShard shard{ranks_[static_cast<size_t>(r)]->a.data(), first, size_.rows[static_cast<size_t>(r)], size_.k,
                           a_pitch()};
    enqueue_next_inputs(shard, salt, most_delay_us, cluster_.stream(r));
  }

  // Wrong elements of all ranks: results, what lies beside them, and the gathered rows. The first ones are printed.
  int64_t count_wrong(Epoch epoch) {
    int64_t wrong = count_records(cluster_);
    for (int32_t r = 0; r < ranks(); ++r) {
      wrong += count_wrong_gathered(r, epoch);
      if (size_.wants_gathered) wrong += count_wrong_gathered_result(r);
      for (size_t w = 0; w < size_.cols.size(); ++w) wrong += count_wrong_out(r, w);
    }
    return wrong;
  }

  // Rounded as the kernel rounds, [total rows, cols].
  std::vector<uint32_t> expected(int32_t r, size_t w) const {
    const int64_t n = size_.cols[w], rows = total_rows();
    std::vector<double> b(static_cast<size_t>(size_.k * n)), bias;
    for (int64_t i = 0; i < size_.k; ++i) {
      for (int64_t c = 0; c < n; ++c) b[static_cast<size_t>(i * n + c)] = coded_b(r, w, i, c);
    }
    for (int64_t c = 0; size_.has_bias && c < n; ++c) bias.push_back(coded_bias(r, w, c));
    std::vector<uint32_t> y(static_cast<size_t>(rows * n));
    constexpr int64_t kParts = 16;
    std::vector<std::thread> threads;
    for (int64_t part = 0; part < kParts; ++part) {
      threads.emplace_back([&, begin = rows * part / kParts, end = rows * (part + 1) / kParts] {
        std::vector<double> a(static_cast<size_t>((end - begin) * size_.k));
        for (int64_t row = begin; row < end; ++row) {
          for (int64_t i = 0; i < size_.k; ++i) a[static_cast<size_t>((row - begin) * size_.k + i)] = a_at(row, i);
        }
        const std::vector<double> sums = ag_gemm::reference({end - begin, size_.k, n}, a, b, bias);
        for (size_t i = 0; i < sums.size(); ++i) y[static_cast<size_t>(begin * n) + i] = bits_of(sums[i], out_type());
      });
    }
    for (std::thread& thread : threads) thread.join();
    return y;
  }
  // [rows + guard, pitch]
  std::vector<uint32_t> out(int32_t r, size_t w) const { return ranks_[static_cast<size_t>(r)]->out[w].to_host(); }
  int64_t out_pitch(size_t w) const { return padded(size_.cols[w], out_type()) + 8; }
  std::vector<uint32_t> gathered_result(int32_t r) const { return ranks_[static_cast<size_t>(r)]->gathered.to_host(); }

 private:
  static constexpr int64_t kGuardRows = 3;

  struct PerRank {
    ag_gemm::FusedKernel kernel;
    DeviceBuffer<uint16_t> a;
    ResultBuffer gathered;
    std::vector<DeviceBuffer<uint16_t>> b;
    std::vector<ResultBuffer> out;
    std::vector<DeviceBuffer<float>> bias;  // bytes of whatever type
    DeviceMatrix a_view, gathered_view;
    std::vector<DeviceMatrix> b_views, out_views;
    std::vector<const void*> bias_views;
  };

  static VirtualClusterSize cluster_size(const FusedSize& size, Epoch first) {
    VirtualClusterSize cluster{.widths = size.widths, .max_chunks = 256, .first = first};
    int64_t rows = 0;
    for (const int64_t r : size.rows) rows += r;
    cluster.half_bytes = rows * padded(size.k) * 2;
    if (cluster.widths.empty()) cluster.widths = {static_cast<int32_t>(size.rows.size())};
    cluster.network = {.personality = size.personality, .latency = std::chrono::microseconds(5), .seed = first};
    return cluster;
  }

  int64_t a_pitch() const { return padded(size_.k) + size_.a_padding; }
  DataType bias_type() const { return size_.is_bias_fp32 ? DataType::fp32 : size_.type; }
  double a_at(int64_t row, int64_t i) const { return coded_a(row, i, salt_); }
  DataType out_type() const { return size_.out_type.value_or(size_.type); }
  uint16_t bits(double value) const { return narrow_bits_of(value, size_.type); }
  ag_gemm::FusedOperands operands(int32_t r) const {
    const PerRank& rank = *ranks_[static_cast<size_t>(r)];
    return {.a = rank.a_view,
            .b = rank.b_views,
            .out = rank.out_views,
            .gathered = rank.gathered_view,
            .bias = rank.bias_views,
            .bias_type = bias_type()};
  }
  template <class T>
  static void upload(const DeviceBuffer<T>& to, const std::vector<T>& from) {
    check_cuda(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "uploading");
  }

  ag_gemm::FusedKernel make_kernel(int32_t r, uint64_t timeout_ns) {
    const ag_gemm::Problem problem{.rows = size_.rows,
                                   .k = size_.k,
                                   .dtype = size_.type,
                                   .cols = size_.cols,
                                   .out_dtype = out_type(),
                                   .wants_gathered = size_.wants_gathered};
    PlanContext context = cluster_.context(r);
    context.workers = size_.ctas;
    ag_gemm::FusedPlan plan = ag_gemm::make_fused_plan(problem, context, size_.push_ctas).choice;
    if (size_.tile_rows != 0) {
      plan.choice.tile_rows = size_.tile_rows;
      plan.choice.tile_cols = size_.tile_cols;
      plan.choice.workers = size_.ctas - (size_.push_ctas > 0 ? size_.push_ctas + 2 : 0);
    }
    plan.choice.chunk_rows = size_.chunk_rows;
    plan.choice.is_fused = size_.is_fused;
    plan.own_in_place = size_.own_in_place;
    return {problem, plan, context, cluster_.rank(r, timeout_ns), size_.is_b_n_major};
  }

  void add_rank(int32_t r, uint64_t timeout_ns) {
    cluster_.use(r);
    const int64_t rows = size_.rows[static_cast<size_t>(r)];
    ranks_.push_back(std::make_unique<PerRank>(PerRank{make_kernel(r, timeout_ns),
                                                       DeviceBuffer<uint16_t>(std::max<int64_t>(1, rows * a_pitch())),
                                                       ResultBuffer(total_rows() + kGuardRows, a_pitch(), size_.type),
                                                       {},
                                                       {},
                                                       {},
                                                       {},
                                                       {},
                                                       {},
                                                       {},
                                                       {}}));
    PerRank& rank = *ranks_.back();
    rank.a_view = {rank.a.data(), rows, size_.k, a_pitch() * 2, size_.type};
    rank.gathered_view = {rank.gathered.data(), total_rows(), size_.k, a_pitch() * 2, size_.type};
    for (size_t w = 0; w < size_.cols.size(); ++w) add_weight(rank, r, w);
  }

  void add_weight(PerRank& rank, int32_t r, size_t w) {
    const int64_t n = size_.cols[w], k = size_.k;
    const int64_t b_rows = size_.is_b_n_major ? k : n, b_cols = size_.is_b_n_major ? n : k, pitch = padded(b_cols) + 8;
    std::vector<uint16_t> b(static_cast<size_t>(std::max<int64_t>(1, b_rows * pitch)), kPoison);
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < n; ++c) {
        b[static_cast<size_t>(size_.is_b_n_major ? i * pitch + c : c * pitch + i)] = bits(coded_b(r, w, i, c));
      }
    }
    upload(rank.b.emplace_back(static_cast<int64_t>(b.size())), b);
    rank.out.emplace_back(total_rows() + kGuardRows, out_pitch(w), out_type());
    rank.b_views.push_back({rank.b.back().data(), b_rows, b_cols, pitch * 2, size_.type});
    rank.out_views.push_back(
        {rank.out.back().data(), total_rows(), n, out_pitch(w) * size_bytes(out_type()), out_type()});
    if (size_.has_bias) add_bias(rank, r, w);
  }

  void add_bias(PerRank& rank, int32_t r, size_t w) {
    const int64_t n = size_.cols[w];
    std::vector<float> bias(static_cast<size_t>(std::max<int64_t>(1, n)));
    for (int64_t c = 0; c < n; ++c) {
      const double value = coded_bias(r, w, c);
      const uint16_t narrow = bits(value);
      if (size_.is_bias_fp32) {
        bias[static_cast<size_t>(c)] = static_cast<float>(value);
      } else {
        memcpy(reinterpret_cast<uint16_t*>(bias.data()) + c, &narrow, sizeof(narrow));
      }
    }
    upload(rank.bias.emplace_back(static_cast<int64_t>(bias.size())), bias);
    rank.bias_views.push_back(rank.bias.back().data());
  }

  int64_t count_wrong_gathered(int32_t r, Epoch epoch) const {
    const DeviceMatrix m = kernel(r).gathered(epoch);
    if (m.rows == 0) return 0;
    std::vector<uint16_t> seen(static_cast<size_t>(m.rows * m.pitch_bytes / 2));
    check_cuda(cudaMemcpy(seen.data(), m.data, seen.size() * 2, cudaMemcpyDeviceToHost), "reading gathered rows");
    int64_t wrong = 0, own_begin = 0;
    for (int32_t before = 0; before < r; ++before) own_begin += size_.rows[static_cast<size_t>(before)];
    const int64_t own_end = own_begin + size_.rows[static_cast<size_t>(r)];
    for (int64_t row = 0; row < m.rows; ++row) {
      if (size_.own_in_place && row >= own_begin && row < own_end) continue;
      for (int64_t i = 0; i < m.cols; ++i) {
        const uint16_t got = seen[static_cast<size_t>(row * m.pitch_bytes / 2 + i)], right = bits(a_at(row, i));
        if (got != right && wrong++ < 2) {
          std::printf("  rank %d gathered[%lld, %lld] is %04x, not %04x\n", r, static_cast<long long>(row),
                      static_cast<long long>(i), got, right);
        }
      }
    }
    return wrong;
  }

  // What lies beside the rows is nobody's.
  int64_t count_wrong_gathered_result(int32_t r) const {
    const std::vector<uint32_t> seen = gathered_result(r);
    const int64_t pitch = a_pitch();
    int64_t wrong = 0;
    for (int64_t row = 0; row < total_rows() + kGuardRows; ++row) {
      for (int64_t i = 0; i < pitch; ++i) {
        const uint32_t right = row < total_rows() && i < size_.k ? bits(a_at(row, i)) : kPoison;
        const uint32_t got = seen[static_cast<size_t>(row * pitch + i)];
        if (got != right && wrong++ < 3) {
          std::printf("  rank %d gathered result [%lld, %lld] is %04x, not %04x\n", r, static_cast<long long>(row),
                      static_cast<long long>(i), got, right);
        }
      }
    }
    return wrong;
  }

  int64_t count_wrong_out(int32_t r, size_t w) const {
    const std::vector<uint32_t> seen = out(r, w), right = expected(r, w);
    const int64_t n = size_.cols[w], pitch = out_pitch(w);
    int64_t wrong = 0;
    for (int64_t row = 0; row < total_rows() + kGuardRows; ++row) {
      for (int64_t c = 0; c < pitch; ++c) {
        const uint32_t got = seen[static_cast<size_t>(row * pitch + c)];
        const bool is_result = row < total_rows() && c < n;
        if (row < total_rows() && !is_result && c < padded(n, out_type())) continue;  // 16 bytes in which a row ends
        const uint32_t expected = is_result ? right[static_cast<size_t>(row * n + c)] : poison_bits(out_type());
        if (got != expected && wrong++ < 3) {
          std::printf("  rank %d out %zu [%lld, %lld] is %04x, not %04x\n", r, w, static_cast<long long>(row),
                      static_cast<long long>(c), got, expected);
        }
      }
    }
    return wrong;
  }

  FusedSize size_;
  VirtualCluster cluster_;
  std::vector<std::unique_ptr<PerRank>> ranks_;
  int64_t salt_ = 0;
};

}  // namespace tilewire

// One MoE dispatch + grouped GEMM of a virtual cluster, with coded values (coded_values.h): every row, every element and
// every table of the routing.
#pragma once

#include "coded_values.h"
#include "fused_calls.cuh"
#include "moe_sizes.h"
#include "virtual_cluster.cuh"

#include "ops/moe_dispatch/device_launch.cuh"
#include "ops/moe_dispatch/reference.h"
#include "ops/moe_dispatch/routing_fixture.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tilewire {

class MoeCase {
 public:
  MoeCase(const MoeSize& size, Epoch first, uint64_t timeout_ns) : size_(size), cluster_(cluster_size(size, first)) {
    for (int32_t r = 0; r < ranks(); ++r) add_rank(r, timeout_ns);
  }

  int32_t ranks() const { return static_cast<int32_t>(size_.tokens.size()); }
  const VirtualCluster& cluster() const { return cluster_; }
  const moe_dispatch::FusedKernel& kernel(int32_t r) const { return at(r).kernel; }

  // New tokens and routes, poison everywhere else: NaN, and `out_fill` in each byte of the results.
  void prepare(Epoch epoch, int out_fill = 0xff) {
    salt_ = static_cast<int64_t>(epoch % 1000);
    routes_ = moe_dispatch::draw_all_routes(size_.skew, size_.tokens, size_.top_k, experts(), epoch);
    cluster_.poison_half(epoch);
    for (int32_t r = 0; r < ranks(); ++r) {
      PerRank& rank = at(r);
      cluster_.use(r);
      std::vector<uint16_t> x(static_cast<size_t>(rank.x.count()), kPoisonBits);
      for (int64_t t = 0; t < size_.tokens[static_cast<size_t>(r)]; ++t) {
        for (int64_t i = 0; i < size_.h; ++i) x[static_cast<size_t>(t * x_pitch() + i)] = bits(x_at(r, t, i));
      }
      upload(rank.x, x);
      const std::vector<int32_t>& ids = routes_.ids[static_cast<size_t>(r)];
      std::vector<int64_t> wide(ids.begin(), ids.end());
      if (size_.is_64_bit) {
        upload(rank.ids, wide);
      } else if (!ids.empty()) {
        check_cuda(cudaMemcpy(rank.ids.data(), ids.data(), ids.size() * 4, cudaMemcpyHostToDevice), "uploading");
      }
      rank.out.fill_bytes(out_fill);
      rank.origins.fill_bytes(0x77);
      rank.offsets.fill_bytes(0x77);
      check_cuda(cudaDeviceSynchronize(), "preparing");
    }
  }

  moe_dispatch::FusedParameters parameters(int32_t r, uint64_t agreed_hash = 77) const {
    return kernel(r).parameters(agreed_hash, operands(r));
  }
  void launch(int32_t r, moe_dispatch::FusedParameters parameters) const {
    cluster_.start_wire();
    cluster_.use(r);
    kernel(r).launch(parameters, cluster_.stream(r));
  }
  // One call of all ranks, which are launched in another order each time.
  void run(Epoch epoch) {
    prepare(epoch);
    for (int32_t i = 0; i < ranks(); ++i) {
      const auto r = static_cast<int32_t>((static_cast<uint64_t>(i) + epoch) % static_cast<uint64_t>(ranks()));
      launch(r, parameters(r));
    }
    wait();
  }
  void wait() const {
    cluster_.wait();
    cluster_.stop_wire();
  }

  // Wrong elements of all ranks, and of what lies beside them. The first ones are printed.
  int64_t count_wrong(Epoch epoch) {
    int64_t wrong = count_records(cluster_);
    for (int32_t r = 0; r < ranks(); ++r) {
      wrong += count_wrong_tables(r, epoch);
      wrong += count_wrong_origins(r);
      wrong += count_wrong_out(r);
    }
    return wrong;
  }
  bool is_unfinished(int32_t r) const {
    const std::vector<uint16_t> out = at(r).out.to_host();
    for (int64_t row = 0; row < most_rows(); ++row) {
      for (int64_t c = 0; c < size_.cols; ++c) {
        const uint16_t value = out[static_cast<size_t>(row * out_pitch() + c)];
        if ((value & 0x7fff) <= (size_.type == DataType::bf16 ? 0x7f80 : 0x7c00)) return false;
      }
    }
    return true;
  }

 private:
  static constexpr int64_t kGuardRows = 3;

  struct PerRank {
    moe_dispatch::FusedKernel kernel;
    std::unique_ptr<moe_dispatch::ScheduleTables> tables;
    DeviceBuffer<uint16_t> x;
    DeviceBuffer<int64_t> ids;
    DeviceBuffer<uint16_t> w, out;
    DeviceBuffer<int32_t> origins;
    DeviceBuffer<int64_t> offsets;
  };

  int32_t experts() const { return static_cast<int32_t>(size_.rank_of_expert.size()); }
  static int64_t most_rows(const MoeSize& size) {
    if (size.max_tokens > 0) return size.max_tokens;
    int64_t rows = 0;
    for (const int64_t tokens : size.tokens) rows += tokens * size.top_k;
    return rows;
  }
  int64_t most_rows() const { return most_rows(size_); }
  static moe_dispatch::Problem problem_of(const MoeSize& size) {
    moe_dispatch::Problem p{.rank_of_expert = size.rank_of_expert,
                            .h = size.h,
                            .top_k = size.top_k,
                            .dtype = size.type,
                            .most_rows = most_rows(size),
                            .cols = size.cols,
                            .out_dtype = size.type,
                            .result_rows = most_rows(size)};
    p.most_tokens = p.planned_tokens = std::max<int64_t>(1, *std::max_element(size.tokens.begin(), size.tokens.end()));
    return p;
  }
  static moe_dispatch::PlanChoice choice_of(const MoeSize& size) {
    const bool is_low = size.tile_rows == 64;
    moe_dispatch::PlanChoice choice{.block_tokens = size.block_tokens,
                                    .window = size.window,
                                    .chunk_tokens = size.chunk_tokens,
                                    .pieces = size.pieces,
                                    .local_first = size.local_first,
                                    .is_fused = size.is_fused,
                                    .tile_rows = size.tile_rows,
                                    .tile_cols = is_low ? 128 : 256,
                                    .raster_rows = 2,
                                    .workers = size.ctas,
                                    .cursors = {}};
    if (choice.block_tokens == 0) choice.block_tokens = problem_of(size).most_tokens;
    return choice;
  }
  static VirtualClusterSize cluster_size(const MoeSize& size, Epoch first) {
    VirtualClusterSize cluster{.widths = size.widths, .max_chunks = 256, .first = first};
    if (cluster.widths.empty()) cluster.widths = {static_cast<int32_t>(size.tokens.size())};
    const TopologyTables topology = TopologyTables::from_layout(cluster.widths);
    PlanContext context{.topology = topology.view(), .me = Rank{0}, .arena = {}, .machine = {}};
    context.arena.flags = {.ranks = topology.view().ranks, .max_chunks = cluster.max_chunks};
    cluster.half_bytes = buffers_of(problem_of(size), choice_of(size), context).end();
    cluster.network = {.personality = size.personality, .latency = std::chrono::microseconds(5), .seed = first};
    return cluster;
  }

  const PerRank& at(int32_t r) const { return *ranks_[static_cast<size_t>(r)]; }
  PerRank& at(int32_t r) { return *ranks_[static_cast<size_t>(r)]; }
  int64_t x_pitch() const { return padded(size_.h) + 8; }
  int64_t out_pitch() const { return padded(size_.cols) + 8; }
  int64_t w_rows() const { return size_.is_b_n_major ? size_.h : size_.cols; }
  int64_t w_cols() const { return size_.is_b_n_major ? size_.cols : size_.h; }
  int64_t w_pitch() const { return padded(w_cols()) + 8; }
  uint16_t bits(double value) const { return narrow_bits_of(value, size_.type); }
  double x_at(int32_t rank, int64_t token, int64_t i) const { return coded_a(100003 * rank + token, i, salt_); }
  static double w_at(int32_t expert, int64_t i, int64_t c) { return coded_b(expert, 0, i, c); }
  std::vector<int32_t> own_experts(int32_t r) const {
    std::vector<int32_t> own;
    for (int32_t e = 0; e < experts(); ++e) {
      if (size_.rank_of_expert[static_cast<size_t>(e)] == r) own.push_back(e);
    }
    return own;
  }
  template <class T>
  static void upload(const DeviceBuffer<T>& to, const std::vector<T>& from) {
    if (from.empty()) return;
    check_cuda(cudaMemcpy(to.data(), from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "uploading");
  }

  void add_rank(int32_t r, uint64_t timeout_ns) {
    cluster_.use(r);
    PlanContext context = cluster_.context(r);
    context.workers = size_.ctas;
    const moe_dispatch::Problem problem = problem_of(size_);
    const moe_dispatch::PlanChoice choice = choice_of(size_);
    const auto own = own_experts(r);
    const int64_t tokens = size_.tokens[static_cast<size_t>(r)], rows = most_rows();
    const auto count = [](int64_t elements) { return std::max<int64_t>(1, elements); };
    ranks_.push_back(std::make_unique<PerRank>(PerRank{
        moe_dispatch::FusedKernel(problem, choice, context, cluster_.rank(r, timeout_ns), size_.is_b_n_major),
        std::make_unique<moe_dispatch::ScheduleTables>(problem, choice, context),
        DeviceBuffer<uint16_t>(count(tokens * x_pitch())), DeviceBuffer<int64_t>(count(tokens * size_.top_k)),
        DeviceBuffer<uint16_t>(count(static_cast<int64_t>(own.size()) * w_rows() * w_pitch())),
        DeviceBuffer<uint16_t>((rows + kGuardRows) * out_pitch()), DeviceBuffer<int32_t>(3 * (rows + kGuardRows)),
        DeviceBuffer<int64_t>(static_cast<int64_t>(own.size()) + 1)}));
    std::vector<uint16_t> w(static_cast<size_t>(at(r).w.count()), kPoisonBits);
    for (size_t e = 0; e < own.size(); ++e) {
      uint16_t* first = w.data() + static_cast<int64_t>(e) * w_rows() * w_pitch();
      for (int64_t row = 0; row < w_rows(); ++row) {
        for (int64_t col = 0; col < w_cols(); ++col) {
          first[row * w_pitch() + col] = bits(size_.is_b_n_major ? w_at(own[e], row, col) : w_at(own[e], col, row));
        }
      }
    }
    upload(at(r).w, w);
  }

  moe_dispatch::FusedOperands operands(int32_t r) const {
    const PerRank& rank = at(r);
    return {.x = {rank.x.data(), size_.tokens[static_cast<size_t>(r)], size_.h, x_pitch() * 2, size_.type},
            .routes = {.ids = rank.ids.data(), .token_stride = size_.top_k, .is_64_bit = size_.is_64_bit},
            .w = {rank.w.data(), static_cast<int64_t>(own_experts(r).size()), w_rows(), w_cols(), w_pitch() * 2,
                  w_rows() * w_pitch() * 2, size_.type},
            .out = {rank.out.data(), most_rows(), size_.cols, out_pitch() * 2, size_.type},
            .origins = rank.origins.data(),
            .offsets = rank.offsets.data()};
  }

  // ---- what the host makes of the same routes
  int64_t count_wrong_tables(int32_t r, Epoch epoch) const {
    moe_dispatch::Schedule s = at(r).tables->schedule(epoch);
    const moe_dispatch::Schedule of_kernel = parameters(r).schedule;
    s.workers = of_kernel.workers;
    s.columns = of_kernel.columns;
    moe_dispatch::RoutedRanks routed(routes_, most_rows());
    routed.apply(s);
    const moe_dispatch::Routing &right = *s.routing, got = kernel(r).routing();
    const auto me = static_cast<size_t>(r);
    int64_t wrong = 0;
    const auto expect_number = [&](const char* name, int64_t a, int64_t b) {
      if (a == b) return;
      ++wrong;
      std::printf("  rank %d %s is %lld, not %lld\n", r, name, static_cast<long long>(a), static_cast<long long>(b));
    };
    expect_number("rounds", got.rounds, right.rounds);
    expect_number("overflow_rank", got.overflow_rank.value, right.overflow_rank.value);
    expect_number("overflow_rows", got.overflow_rows, right.overflow_rows);
    expect_number("places", got.places, right.places);
    expect_number("groups", got.groups, right.groups);
    if (wrong > 0) return wrong;
    const int64_t ranks = s.ranks(), nodes = s.topology().nodes, own_rounds = s.rounds_of_tokens(s.tokens);
    const int64_t rounds = right.rounds, experts_of_all = s.experts.experts, own = s.own_experts();
    const int64_t listed = right.first_row[own_rounds * experts_of_all], sent = right.first_token[own_rounds * nodes];
    const auto check = [&]<class T>(const char* name, const T* device, const T* host, int64_t count) {
      std::vector<T> seen(static_cast<size_t>(count));
      if (count > 0) {
        check_cuda(cudaMemcpy(seen.data(), device, seen.size() * sizeof(T), cudaMemcpyDeviceToHost), "reading tables");
      }
      int64_t differing = 0;
      for (int64_t i = 0; i < count; ++i) {
        if (std::memcmp(&seen[static_cast<size_t>(i)], host + i, sizeof(T)) == 0) continue;
        if (differing++ > 0) continue;
        int32_t words[2][2] = {};
        std::memcpy(words[0], &seen[static_cast<size_t>(i)], std::min(sizeof(T), sizeof(words[0])));
        std::memcpy(words[1], host + i, std::min(sizeof(T), sizeof(words[1])));
        std::printf("  rank %d %s[%lld of %lld] is (%d, %d), not (%d, %d)\n", r, name, static_cast<long long>(i),
                    static_cast<long long>(count), words[0][0], words[0][1], words[1][0], words[1][1]);
      }
      wrong += differing;
    };
    check("slots", got.slots, right.slots, size_.tokens[me] * size_.top_k);
    check("first_row", got.first_row, right.first_row, own_rounds * experts_of_all + 1);
    check("own_rows", got.own_rows, right.own_rows, listed);
    check("first_token", got.first_token, right.first_token, own_rounds * nodes + 1);
    check("own_tokens", got.own_tokens, right.own_tokens, sent);
    check("rounds_of", got.rounds_of, right.rounds_of, ranks);
    check("rows_of", got.rows_of, right.rows_of, ranks);
    check("tokens_of", got.tokens_of, right.tokens_of, ranks);
    check("place_rows", got.place_rows, right.place_rows, experts_of_all);
    check("offsets", got.offsets, right.offsets, own + 1);
    check("cells", got.cells, right.cells, rounds * right.places * ranks);
    check("piece_rows", got.piece_rows, right.piece_rows, rounds * s.width() * s.pieces * ranks);
    check("staged", got.staged, right.staged, rounds * ranks);
    check("node_tokens", got.node_tokens, right.node_tokens, rounds * nodes);
    check("node_begin", got.node_begin, right.node_begin, rounds * nodes);
    check("group_begin", got.group_begin, right.group_begin, rounds * (right.groups + 1));
    check("group_tile", got.group_tile, right.group_tile, rounds * right.groups + 1);
    check("result_row", got.result_row, right.result_row, rounds * own * ranks);
    return wrong;
  }

  std::vector<moe_dispatch::ReferenceRow> rows_of(int32_t r) const {
    return moe_dispatch::reference_rows(routes_.ids, size_.top_k, size_.rank_of_expert, r);
  }
  bool is_overflow() const {
    for (int32_t r = 0; r < ranks(); ++r) {
      if (static_cast<int64_t>(rows_of(r).size()) > most_rows()) return true;
    }
    return false;
  }

  int64_t count_wrong_origins(int32_t r) const {
    const auto rows = rows_of(r);
    const std::vector<int32_t> seen = at(r).origins.to_host();
    const std::vector<int64_t> offsets = at(r).offsets.to_host();
    int64_t wrong = 0;
    for (int64_t row = 0; row < most_rows() + kGuardRows; ++row) {
      const bool is_row = !is_overflow() && row < static_cast<int64_t>(rows.size());
      const int32_t none = row < most_rows() ? -1 : 0x77777777;
      int32_t right[3] = {none, none, none};
      if (is_row) {
        const auto& of = rows[static_cast<size_t>(row)];
        right[0] = of.rank;
        right[1] = of.token;
        right[2] = of.slot;
      }
      const int32_t* got = seen.data() + 3 * row;
      if (std::memcmp(got, right, sizeof(right)) == 0 || wrong++ > 2) continue;
      std::printf("  rank %d origins[%lld of %zu] is (%d, %d, %d), not (%d, %d, %d)\n", r, static_cast<long long>(row),
                  rows.size(), got[0], got[1], got[2], right[0], right[1], right[2]);
    }
    const std::vector<int32_t> own = own_experts(r);
    int64_t before = 0;
    for (size_t e = 0; e <= own.size(); ++e) {
      if (offsets[e] != before && wrong++ < 6) {
        std::printf("  rank %d offsets[%zu] is %lld, not %lld\n", r, e, static_cast<long long>(offsets[e]),
                    static_cast<long long>(before));
      }
      if (e == own.size()) break;
      for (const auto& row : rows) before += row.expert == own[e] ? 1 : 0;
    }
    return wrong;
  }

  std::vector<uint16_t> expected(int32_t r) const {
    const auto rows = rows_of(r);
    std::vector<uint16_t> y(rows.size() * static_cast<size_t>(size_.cols));
    constexpr size_t kParts = 16;
    std::vector<std::thread> threads;
    for (size_t part = 0; part < kParts; ++part) {
      threads.emplace_back([&, part] {
        std::vector<float> sums(static_cast<size_t>(size_.cols));
        for (size_t row = part; row < rows.size(); row += kParts) {
          std::fill(sums.begin(), sums.end(), 0.0F);
          const auto& of = rows[row];
          for (int64_t i = 0; i < size_.h; ++i) {
            const auto x = static_cast<float>(x_at(of.rank, of.token, i));
            const std::vector<float>& weights = weights_of(of.expert);
            const float* w = weights.data() + i * size_.cols;
            for (int64_t c = 0; c < size_.cols; ++c) sums[static_cast<size_t>(c)] += x * w[c];
          }
          for (int64_t c = 0; c < size_.cols; ++c) {
            y[row * static_cast<size_t>(size_.cols) + static_cast<size_t>(c)] = bits(sums[static_cast<size_t>(c)]);
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return y;
  }
  // [H, I] of an expert; made once.
  const std::vector<float>& weights_of(int32_t expert) const {
    std::call_once(weights_made_, [this] {
      for (int32_t e = 0; e < experts(); ++e) {
        std::vector<float>& w = weights_.emplace_back();
        for (int64_t i = 0; i < size_.h; ++i) {
          for (int64_t c = 0; c < size_.cols; ++c) w.push_back(static_cast<float>(w_at(e, i, c)));
        }
      }
    });
    return weights_[static_cast<size_t>(expert)];
  }

  int64_t count_wrong_out(int32_t r) const {
    const auto rows = static_cast<int64_t>(rows_of(r).size());
    const std::vector<uint16_t> seen = at(r).out.to_host(),
                                right = is_overflow() ? std::vector<uint16_t>{} : expected(r);
    int64_t wrong = 0;
    for (int64_t row = 0; row < most_rows() + kGuardRows; ++row) {
      for (int64_t c = 0; c < out_pitch(); ++c) {
        const uint16_t got = seen[static_cast<size_t>(row * out_pitch() + c)];
        uint16_t expected = kPoisonBits;
        if (row < most_rows() && c < size_.cols && !is_overflow()) {
          expected = row < rows ? right[static_cast<size_t>(row * size_.cols + c)] : 0;
        }
        if (got == expected || wrong++ > 2) continue;
        std::printf("  rank %d out [%lld of %lld, %lld] is %04x, not %04x\n", r, static_cast<long long>(row),
                    static_cast<long long>(rows), static_cast<long long>(c), got, expected);
      }
    }
    return wrong;
  }

  MoeSize size_;
  VirtualCluster cluster_;
  std::vector<std::unique_ptr<PerRank>> ranks_;
  moe_dispatch::Routes routes_;
  int64_t salt_ = 0;
  mutable std::once_flag weights_made_;
  mutable std::vector<std::vector<float>> weights_;
};

}  // namespace tilewire

// One MoE dispatch + grouped GEMM of a virtual cluster, with coded values: every row, every element and every table of the
// routing.
#pragma once

#include "fused_calls.cuh"
#include "fused_inputs.cuh"
#include "moe_answer.h"
#include "moe_tables.cuh"
#include "virtual_cluster.cuh"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace tilewire {

template <class Id>
__global__ void fill_routes(Id* ids, int64_t count, int32_t rank, int32_t experts, const int64_t* salt) {
  for (auto i = static_cast<int64_t>(threadIdx.x); i < count; i += blockDim.x) {
    ids[i] = coded_expert(rank, i, *salt, experts);
  }
}

class MoeCase {
 public:
  MoeCase(const MoeSize& size, Epoch first, uint64_t timeout_ns)
      : size_(size), answer_(size), cluster_(cluster_size(size, first)) {
    for (int32_t r = 0; r < ranks(); ++r) add_rank(r, timeout_ns);
  }

  int32_t ranks() const { return answer_.ranks(); }
  const VirtualCluster& cluster() const { return cluster_; }
  const moe_dispatch::FusedKernel& kernel(int32_t r) const { return at(r).kernel; }

  // New tokens and routes, poison everywhere else: NaN, and `out_fill` in each byte of the results.
  void prepare(Epoch epoch, int out_fill = 0xff) {
    answer_.draw(static_cast<int64_t>(epoch % 1000), epoch);
    cluster_.poison_half(epoch);
    for (int32_t r = 0; r < ranks(); ++r) {
      PerRank& rank = at(r);
      cluster_.use(r);
      std::vector<uint16_t> x(static_cast<size_t>(rank.x.count()), kPoisonBits);
      for (int64_t t = 0; t < answer_.tokens(r); ++t) {
        for (int64_t i = 0; i < size_.h; ++i) x[static_cast<size_t>(t * x_pitch() + i)] = answer_.x(r, t, i);
      }
      upload(rank.x.data(), x);
      const std::vector<int32_t>& ids = answer_.routes().ids[static_cast<size_t>(r)];
      if (size_.is_64_bit) {
        upload(rank.ids.data(), std::vector<int64_t>(ids.begin(), ids.end()));
      } else {
        upload(reinterpret_cast<int32_t*>(rank.ids.data()), ids);
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
    enqueue(r, parameters);
  }
  void enqueue(int32_t r, moe_dispatch::FusedParameters parameters) const {
    cluster_.use(r);
    kernel(r).launch(parameters, cluster_.stream(r));
  }
  void run(Epoch epoch) { run_call(*this, epoch); }
  void wait() const {
    cluster_.wait();
    cluster_.stop_wire();
  }

  // For tokens and routes that a kernel writes.
  void set_salt(int64_t salt) { answer_.code(salt); }
  void enqueue_inputs(int32_t r, int64_t* salt, uint32_t most_delay_us) const {
    cluster_.use(r);
    const CodedShard shard{at(r).x.data(), kTokensOfRank * r, answer_.tokens(r), size_.h, x_pitch()};
    enqueue_next_inputs(shard, salt, most_delay_us, cluster_.stream(r));
    const int64_t slots = answer_.tokens(r) * size_.top_k;
    const int32_t experts = answer_.experts();
    if (size_.is_64_bit) {
      fill_routes<<<1, 256, 0, cluster_.stream(r)>>>(at(r).ids.data(), slots, r, experts, salt);
    } else {
      auto* ids = reinterpret_cast<int32_t*>(at(r).ids.data());
      fill_routes<<<1, 256, 0, cluster_.stream(r)>>>(ids, slots, r, experts, salt);
    }
    check_cuda(cudaGetLastError(), "writing routes");
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
  // Of the last call.
  int64_t tiles(int32_t r) const {
    const moe_dispatch::Routing routing = kernel(r).routing();
    int64_t tiles = 0;
    check_cuda(cudaMemcpy(&tiles, routing.group_tile + int64_t{routing.rounds} * routing.groups, sizeof(tiles),
                          cudaMemcpyDeviceToHost),
               "reading tables");
    return tiles;
  }
  bool is_unfinished(int32_t r) const {
    const std::vector<uint16_t> out = at(r).out.to_host();
    for (int64_t row = 0; row < answer_.most_rows(); ++row) {
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

  static moe_dispatch::FusedPlan plan_of(const MoeSize& size) {
    moe_dispatch::FusedPlan plan;
    moe_dispatch::PlanChoice& choice = plan.choice;
    choice.tile_rows = moe_dispatch::FusedPlan::kForms[size.form].work_rows();
    choice.tile_cols = moe_dispatch::FusedPlan::kForms[size.form].work_cols();
    choice.block_tokens = size.block_tokens > 0 ? size.block_tokens : MoeAnswer(size).problem().most_tokens;
    choice.window = size.window;
    choice.chunk_tokens = size.chunk_tokens;
    choice.pieces = size.pieces;
    choice.local_first = size.local_first;
    choice.is_fused = size.is_fused;
    choice.raster_rows = 2;
    choice.workers = size.ctas;
    return plan;
  }
  static VirtualClusterSize cluster_size(const MoeSize& size, Epoch first) {
    VirtualClusterSize cluster{.widths = size.widths, .max_chunks = 256, .first = first};
    if (cluster.widths.empty()) cluster.widths = {static_cast<int32_t>(size.tokens.size())};
    const TopologyTables topology = TopologyTables::from_layout(cluster.widths);
    PlanContext context{.topology = topology.view(), .me = Rank{0}, .arena = {}, .machine = {}};
    context.arena.flags = {.ranks = topology.view().ranks, .max_chunks = cluster.max_chunks};
    cluster.half_bytes = buffers_of(MoeAnswer(size).problem(), plan_of(size).choice, context).end();
    cluster.network = {.personality = size.personality, .latency = std::chrono::microseconds(5), .seed = first};
    return cluster;
  }

  const PerRank& at(int32_t r) const { return *ranks_[static_cast<size_t>(r)]; }
  PerRank& at(int32_t r) { return *ranks_[static_cast<size_t>(r)]; }
  int64_t x_pitch() const { return padded(size_.h) + 8; }
  int64_t out_pitch() const { return padded(size_.cols) + 8; }
  template <class T>
  static void upload(T* to, const std::vector<T>& from) {
    if (from.empty()) return;
    check_cuda(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice), "uploading");
  }

  void add_rank(int32_t r, uint64_t timeout_ns) {
    cluster_.use(r);
    PlanContext context = cluster_.context(r);
    context.workers = size_.ctas;
    const moe_dispatch::Problem problem = answer_.problem();
    const moe_dispatch::FusedPlan plan = plan_of(size_);
    const auto own = answer_.own_experts(r);
    const int64_t tokens = answer_.tokens(r), rows = answer_.most_rows() + kGuardRows;
    const auto count = [](int64_t elements) { return std::max<int64_t>(1, elements); };
    ranks_.push_back(std::make_unique<PerRank>(
        PerRank{moe_dispatch::FusedKernel(problem, plan, context, cluster_.rank(r, timeout_ns), size_.is_b_n_major),
                std::make_unique<moe_dispatch::ScheduleTables>(problem, plan.choice, context),
                DeviceBuffer<uint16_t>(count(tokens * x_pitch())), DeviceBuffer<int64_t>(count(tokens * size_.top_k)),
                DeviceBuffer<uint16_t>(count(static_cast<int64_t>(own.size()) * answer_.w_rows() * answer_.w_pitch())),
                DeviceBuffer<uint16_t>(rows * out_pitch()), DeviceBuffer<int32_t>(3 * rows),
                DeviceBuffer<int64_t>(static_cast<int64_t>(own.size()) + 1)}));
    upload(at(r).w.data(), answer_.stored_weights(r));
  }

  moe_dispatch::FusedOperands operands(int32_t r) const {
    const PerRank& rank = at(r);
    return {.x = {rank.x.data(), answer_.tokens(r), size_.h, x_pitch() * 2, size_.type},
            .routes = {.ids = rank.ids.data(), .token_stride = size_.top_k, .is_64_bit = size_.is_64_bit},
            .w = {rank.w.data(), static_cast<int64_t>(answer_.own_experts(r).size()), answer_.w_rows(),
                  answer_.w_cols(), answer_.w_pitch() * 2, answer_.w_rows() * answer_.w_pitch() * 2, size_.type},
            .out = {rank.out.data(), answer_.most_rows(), size_.cols, out_pitch() * 2, size_.type},
            .origins = rank.origins.data(),
            .offsets = rank.offsets.data()};
  }

  int64_t count_wrong_tables(int32_t r, Epoch epoch) const {
    moe_dispatch::Schedule s = at(r).tables->schedule(epoch);
    const moe_dispatch::Schedule of_kernel = parameters(r).schedule;
    s.workers = of_kernel.workers;
    s.columns = of_kernel.columns;
    return MoeTablesCheck(kernel(r), s, answer_.routes(), answer_.most_rows()).count_wrong();
  }

  int64_t count_wrong_origins(int32_t r) const {
    const auto& rows = answer_.rows(r);
    const std::vector<int32_t> seen = at(r).origins.to_host();
    const std::vector<int64_t> offsets = at(r).offsets.to_host();
    int64_t wrong = 0;
    for (int64_t row = 0; row < answer_.most_rows() + kGuardRows; ++row) {
      const bool is_row = !answer_.is_overflow() && row < static_cast<int64_t>(rows.size());
      const int32_t none = row < answer_.most_rows() ? -1 : 0x77777777;
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
    const std::vector<int32_t> own = answer_.own_experts(r);
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

  int64_t count_wrong_out(int32_t r) {
    const bool has_rows = !answer_.is_overflow();
    const auto rows = static_cast<int64_t>(answer_.rows(r).size());
    const std::vector<uint16_t> seen = at(r).out.to_host(), right = has_rows ? answer_.out(r) : std::vector<uint16_t>{};
    int64_t wrong = 0;
    for (int64_t row = 0; row < answer_.most_rows() + kGuardRows; ++row) {
      for (int64_t c = 0; c < out_pitch(); ++c) {
        const uint16_t got = seen[static_cast<size_t>(row * out_pitch() + c)];
        uint16_t expected = kPoisonBits;
        if (row < answer_.most_rows() && c < size_.cols && has_rows) {
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
  MoeAnswer answer_;
  VirtualCluster cluster_;
  std::vector<std::unique_ptr<PerRank>> ranks_;
};

}  // namespace tilewire

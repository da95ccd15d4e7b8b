// One MoE dispatch + grouped GEMM of a rank that is a process of its own, with coded values and routes that change with
// them. Host code.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "moe_answer.h"
#include "rank_memory.h"

#include "ops/moe_dispatch/device_op.h"

namespace tilewire {

struct MoeRankShape {
  std::string name;
  MoeSize size;
  bool is_counted = false;  // max_tokens is not said: rows are counted first
};

class MoeRankCase {
 public:
  using Device = moe_dispatch::DeviceOp;

  MoeRankCase(const MoeRankShape& shape, int32_t me)
      : shape_(shape),
        me_(me),
        answer_(shape.size),
        x_(answer_.tokens(me), shape.size.h, shape.size.type),
        ids_(make_poisoned<int64_t>(slots())),
        next_ids_(static_cast<size_t>(ids_.count()) * sizeof(int64_t)),
        w_(make_poisoned<uint16_t>(own() * answer_.w_rows() * answer_.w_pitch())),
        out_(answer_.most_rows(), shape.size.cols, shape.size.type),
        origins_(make_poisoned<int32_t>(3 * answer_.most_rows())),
        offsets_(make_poisoned<int64_t>(own() + 1)) {
    upload(w_, answer_.stored_weights(me));
    check_cuda(cudaDeviceSynchronize(), "preparing operands");
  }

  // The next tokens and routes in pinned memory; enqueue_inputs() brings them to the GPU.
  void set_salt(int64_t salt) {
    salt_ = salt;
    answer_.code(salt);
    x_.set([&](int64_t token, int64_t i) { return coded_a(kTokensOfRank * me_ + token, i, salt); });
    const std::vector<int32_t>& ids = answer_.routes().ids[static_cast<size_t>(me_)];
    if (shape_.size.is_64_bit) {
      std::copy(ids.begin(), ids.end(), static_cast<int64_t*>(next_ids_.data()));
    } else {
      std::copy(ids.begin(), ids.end(), static_cast<int32_t*>(next_ids_.data()));
    }
  }
  // In place of the first route: a number that is no expert's.
  void spoil_route(int32_t expert) { *static_cast<int32_t*>(next_ids_.data()) = expert; }
  void enqueue_inputs(cudaStream_t stream) const {
    x_.enqueue(stream);
    check_cuda(cudaMemcpyAsync(ids_.data(), next_ids_.data(), ids_bytes(), cudaMemcpyHostToDevice, stream),
               "copying routes");
  }
  void fill_results(cudaStream_t stream, int fill = 0xff) const {
    out_.fill(fill, stream);
    const auto set = [&](void* to, size_t bytes) {
      check_cuda(cudaMemsetAsync(to, fill, bytes, stream), "poisoning results");
    };
    set(origins_.data(), static_cast<size_t>(origins_.count()) * sizeof(int32_t));
    set(offsets_.data(), static_cast<size_t>(offsets_.count()) * sizeof(int64_t));
  }

  moe_dispatch::Arguments arguments() const {
    const MoeSize& size = shape_.size;
    moe_dispatch::Arguments args;
    args.x = x_.view();
    args.routes = {.ids = ids_.data(),
                   .tokens = answer_.tokens(me_),
                   .top_k = size.top_k,
                   .token_stride = size.top_k,
                   .is_64_bit = size.is_64_bit};
    const int64_t pitch = answer_.w_pitch();
    for (int64_t e = 0; e < own(); ++e) {
      args.w.push_back({w_.data() + e * answer_.w_rows() * pitch, size.h, size.cols, size.is_b_n_major ? pitch : 1,
                        size.is_b_n_major ? 1 : pitch, size.type});
    }
    args.cols = size.cols;
    args.rank_of_expert = size.rank_of_expert;
    args.out_dtype = size.type;
    if (!shape_.is_counted) {
      args.max_tokens = answer_.most_rows();
      args.max_source_tokens = answer_.problem().most_tokens;
    }
    args.make_results = [this](const moe_dispatch::Problem& problem) {
      MatrixView out = out_.view();
      out.rows = problem.result_rows;
      return moe_dispatch::Arguments::Results{out, origins_.data(), offsets_.data()};
    };
    return args;
  }

  // Wrong elements, origins and offsets; the first ones are printed. Where rows are counted there is nothing behind them.
  int64_t count_wrong() {
    std::vector<uint16_t>& right = right_[salt_];
    if (right.empty()) right = answer_.out(me_);
    const auto rows = static_cast<int64_t>(answer_.rows(me_).size());
    const int64_t cols = shape_.size.cols;
    const uint32_t behind = shape_.is_counted ? kPoisonBits : 0;
    const std::string rank = "rank " + std::to_string(me_);
    return count_wrong_origins(rank) + out_.count_wrong(rank + " out", [&](int64_t row, int64_t c) {
      return row < rows ? uint32_t{right[static_cast<size_t>(row * cols + c)]} : behind;
    });
  }
  // Nobody moves anything before all have counted.
  bool is_nan_without(int32_t) const { return is_nan(); }
  bool is_nan() const { return out_.is_nan(0, answer_.most_rows()); }

 private:
  int64_t slots() const { return answer_.tokens(me_) * shape_.size.top_k; }
  size_t ids_bytes() const {
    return static_cast<size_t>(slots()) * (shape_.size.is_64_bit ? sizeof(int64_t) : sizeof(int32_t));
  }
  int64_t own() const { return static_cast<int64_t>(answer_.own_experts(me_).size()); }

  int64_t count_wrong_origins(const std::string& rank) const {
    const auto& rows = answer_.rows(me_);
    const std::vector<int32_t> origins = origins_.to_host();
    const std::vector<int64_t> offsets = offsets_.to_host();
    int64_t wrong = 0;
    for (size_t row = 0; row < static_cast<size_t>(answer_.most_rows()); ++row) {
      int32_t right[3] = {-1, -1, -1};  // also what poison is
      if (row < rows.size()) {
        right[0] = rows[row].rank;
        right[1] = rows[row].token;
        right[2] = rows[row].slot;
      }
      const int32_t* got = origins.data() + 3 * row;
      if (std::memcmp(got, right, sizeof(right)) == 0 || wrong++ > 2) continue;
      std::printf("  %s origins[%zu] is (%d, %d, %d), not (%d, %d, %d)\n", rank.c_str(), row, got[0], got[1], got[2],
                  right[0], right[1], right[2]);
    }
    const std::vector<int32_t> experts = answer_.own_experts(me_);
    int64_t before = 0;
    for (size_t e = 0; e <= experts.size(); ++e) {
      if (offsets[e] != before && wrong++ < 6) {
        std::printf("  %s offsets[%zu] is %lld, not %lld\n", rank.c_str(), e, static_cast<long long>(offsets[e]),
                    static_cast<long long>(before));
      }
      if (e == experts.size()) break;
      before += std::count_if(rows.begin(), rows.end(), [&](const auto& row) { return row.expert == experts[e]; });
    }
    return wrong;
  }

  MoeRankShape shape_;
  int32_t me_;
  int64_t salt_ = 0;
  MoeAnswer answer_;
  RankInput x_;
  DeviceBuffer<int64_t> ids_;
  Pinned next_ids_;
  DeviceBuffer<uint16_t> w_;
  RankResult out_;
  DeviceBuffer<int32_t> origins_;
  DeviceBuffer<int64_t> offsets_;
  std::map<int64_t, std::vector<uint16_t>> right_;  // results, by salt
};

}  // namespace tilewire

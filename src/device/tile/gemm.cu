#include "device/tile/gemm.cuh"

#include "device/tile/form_entry.h"
#include "device/tile/gemm_entries.h"
#include "device/tile/gemm_kernel.cuh"
#include "device/tile/tile_launch.cuh"

#include <tilewire/error.h>

#include <algorithm>
#include <array>
#include <string>

namespace tilewire {

namespace {

constexpr int64_t kRasterRows = 2048;  // walked together, column by column, so that B stays in the L2 cache

constexpr std::array kForms = {form_numbers<Cooperative128x256>(), form_numbers<PingPong128x192>(),
                               form_numbers<PingPong128x128>(), form_numbers<PingPong64x128>()};
constexpr std::array<FormKernel, kForms.size()> kEntries = {cooperative_128x256_entry, ping_pong_128x192_entry,
                                                            ping_pong_128x128_entry, ping_pong_64x128_entry};

void check_shapes(const GemmProblem& p) {
  const int64_t b_cols = p.is_b_n_major ? p.b.cols : p.b.rows, b_depth = p.is_b_n_major ? p.b.rows : p.b.cols;
  if (p.a.cols == b_depth && p.d.rows == p.a.rows && p.d.cols == b_cols && p.a.type == p.b.type &&
      p.a.type == p.d.type && p.a.type != DataType::fp32) {
    return;
  }
  const auto text = [](const DeviceMatrix& m) {
    return std::string(to_string(m.type)) + " [" + std::to_string(m.rows) + ", " + std::to_string(m.cols) + "]";
  };
  throw Error(ErrorKind::invalid_argument,
              {.what = "the matrices of a GEMM do not fit each other",
               .values = "a " + text(p.a) + ", b " + text(p.b) + ", d " + text(p.d),
               .limit = p.is_b_n_major ? "a [M, K], b [K, N], d [M, N], all bf16 or all fp16"
                                       : "a [M, K], b [N, K], d [M, N], all bf16 or all fp16"});
}

}  // namespace

std::span<const FormNumbers> gemm_forms() { return kForms; }

const FormNumbers& choose_gemm_form(int64_t rows, int64_t cols, int64_t depth, int32_t sms) {
  return *std::min_element(kForms.begin(), kForms.end(), [&](const FormNumbers& x, const FormNumbers& y) {
    return model_clocks(x, rows, cols, depth, sms) < model_clocks(y, rows, cols, depth, sms);
  });
}

Gemm::Gemm(const GemmProblem& problem, const FormNumbers* form, int32_t sms) {
  check_shapes(problem);
  if (sms == 0) sms = sm_count();
  form_ = form ? form : &choose_gemm_form(problem.d.rows, problem.d.cols, problem.a.cols, sms);
  const auto index = static_cast<size_t>(form_ - kForms.data());
  kernel_ = kEntries.at(index)(problem.a.type, problem.is_b_n_major);
  encode_maps(problem);
  plan_tiles(problem, problem.a.cols, sms);
}

void Gemm::encode_maps(const GemmProblem& problem) {
  const int32_t b_rows = problem.is_b_n_major ? kStageDepth : form_->cols;
  a_ = encode_tensor_map("a", problem.a, {form_->rows / form_->cluster_col_tiles, kStageDepth});
  b_ = encode_tensor_map("b", problem.b, {b_rows / form_->cluster_row_tiles, kStageDepth});
  d_ = encode_tensor_map("d", problem.d, {kMmaRows, form_->box_cols});
}

void Gemm::plan_tiles(const GemmProblem& problem, int64_t depth, int32_t sms) {
  const int32_t work_rows = form_->work_rows(), work_cols = form_->work_cols();
  const auto blocks = [](int64_t extent, int32_t of) { return static_cast<int32_t>((extent + of - 1) / of); };
  tiles_.grid = {problem.d.rows, work_rows, blocks(problem.d.rows, work_rows), blocks(problem.d.cols, work_cols),
                 static_cast<int32_t>(std::max<int64_t>(1, kRasterRows / work_rows))};
  tiles_.work_cols = work_cols;
  tiles_.cols = problem.d.cols;
  stages_per_tile_ = blocks(depth, kStageDepth);
  const int32_t fit = std::min(prepare_tile_kernel(kernel_, *form_), sms / form_->cluster_ctas());
  tiles_.workers = static_cast<int32_t>(std::min<int64_t>(tiles_.grid.tiles(), fit));
  if (tiles_.workers < 1) {
    throw Error(ErrorKind::unavailable, {.what = "the GEMM kernel does not fit this GPU",
                                         .values = std::string(form_->name) + ", " + std::to_string(sms) + " SMs"});
  }
  ctas_ = tiles_.workers * form_->cluster_ctas();
}

GemmParameters Gemm::parameters() const { return {{a_, {b_}, {d_}}, tiles_, stages_per_tile_}; }

void Gemm::launch(cudaStream_t stream) const {
  GemmParameters parameters = this->parameters();
  launch_tile_kernel(kernel_, *form_, ctas_, &parameters, stream);
}

}  // namespace tilewire

// The calls that ag_gemm_gpu_test makes: sizes, types and plans.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/emulated/emulated_transport.h"

#include <tilewire/data_type.h>

namespace tilewire {

struct FusedSize {
  std::string name;
  std::vector<int64_t> rows;  // of each rank
  int64_t k = 0;
  std::vector<int64_t> cols;  // of each weight; rank r has weights of its own
  DataType type = DataType::bf16;
  std::optional<DataType> out_type = {};  // none: that of the operands
  bool wants_gathered = false;
  bool is_b_n_major = false;
  bool has_bias = false;
  bool is_bias_fp32 = true;
  int64_t a_padding = 0;  // elements by which rows of a are longer than a row of the gathered buffer
  int64_t chunk_rows = 64;
  int32_t ctas = 24;  // of each rank
  int32_t push_ctas = 2;
  int32_t tile_rows = 0, tile_cols = 0;  // 0: the plan chooses
  bool is_fused = true;
  bool own_in_place = true;
  std::vector<int32_t> widths = {};  // ranks of each node; empty: all on one
  Personality personality = Personality::rc;
};

// Every shape class, form, layout of operands, type and network.
std::vector<FusedSize> fused_sizes();

// A few that are small enough for a tool that looks at every access.
std::vector<FusedSize> small_fused_sizes();

}  // namespace tilewire

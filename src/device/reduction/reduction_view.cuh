// What the roles of a reduction are given beside their schedule. A kernel parameter, or part of one.
#pragma once

#include "device/ptx/qualifier.cuh"
#include "device/tile/deal.cuh"
#include "device/tile/tile_form.h"
#include "schedule/reduction_works.h"

#include <tilewire/data_type.h>

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace tilewire {

struct ReductionView {
  OutType wire = OutType::as_operands;  // of partial sums in their slots
  DataType partial = DataType::bf16;    // the same
  DataType node_sum = DataType::bf16;
  // [halves][ranks of the own node][kSlotMaps] the slots of this rank's partial sums there, in device memory: columns, rows
  // and slots.
  const CUtensorMap* slots = nullptr;
  int32_t half_maps = 0;  // of them
  int32_t width = 1;      // ranks of the own node
  int32_t others = 0;     // other nodes
  int32_t here = 0;       // number of the own node
  bool has_tiles = false;
  WorkTable<TileWork> tiles;
  UnitCounter dealt;  // of them
  WorkTable<SumWork> reduce, finish;
  // How many parts of a chunk have been done in a call, in device memory of this rank alone: who has done the last one
  // publishes the chunk.
  uint64_t* made = nullptr;    // [chunks], by global number
  uint64_t* summed = nullptr;  // [sums()], by ReductionSchedule::sum_number()

  // Whether sums are walked four at a time: some slots have 32 bits.
  TILEWIRE_DEVICE bool is_wide() const {
    return partial == DataType::fp32 || (others > 0 && node_sum == DataType::fp32);
  }
};

// The caller's memory for the sum of own chunks, and what is added to it.
struct ResultView {
  std::byte* out = nullptr;  // columns contiguous
  int64_t out_pitch_bytes = 0;
  DataType out_type = DataType::bf16;
  const std::byte* bias = nullptr;  // one number a column, null: none
  DataType bias_type = DataType::fp32;
  const std::byte* residual = nullptr;  // null: none
  int64_t residual_row_bytes = 0, residual_col_bytes = 0;
  DataType residual_type = DataType::bf16;
  bool is_aligned = false;  // rows of `out` begin on 16 bytes
};

}  // namespace tilewire

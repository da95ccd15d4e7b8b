// The forms in which output tiles are computed, and all numbers that follow from a form: one source for the kernels,
// for their launch and for the choice between them. Measured choices; docs/results has the figures.
//
// A CTA has three warpgroups: one that loads and has warps to spare, two that compute. In a cooperative form both work
// on one tile; in a ping-pong form each has a tile of its own, and one stores while the other computes.
// CTAs of a cluster have tiles beside each other and share one operand: stacked ones (along the rows) share B, CTAs in
// a line (along the columns) share A. Each loads its part of it for all.
#pragma once

#include <tilewire/data_type.h>

#include <cstdint>

namespace tilewire {

enum class ClusterShape : uint8_t { single, stacked_pair, pair_in_line };

struct Cooperative128x256 {
  static constexpr const char* kName = "cooperative_128x256";
  static constexpr int32_t kRows = 128, kCols = 256, kStages = 4;
  static constexpr ClusterShape kCluster = ClusterShape::stacked_pair;
  static constexpr bool kIsPingPong = false;
  static constexpr int32_t kBoxCols = 64;  // columns that the epilogue stores at once: 64 or 32
  static constexpr int32_t kExposedClocks = 2600;
  static constexpr double kTraffic = 1.0;
  static constexpr double kBusyTraffic = 1.0;
  static constexpr double kSharedTraffic = 1.27;
  static constexpr int32_t kCopyStages = 4;  // pieces that a copying warp has room for, see WithSpareRoom
  static constexpr int32_t kSpareBytes = 0;  // of shared memory, for whom works beside the tiles
  static constexpr int32_t kLoaderRegisters = 56;
};

// A line of them: where rows end after few tiles, and operands of several ranks are read from one cache.
struct Cooperative128x256InLine : Cooperative128x256 {
  static constexpr const char* kName = "cooperative_128x256_in_line";
  static constexpr ClusterShape kCluster = ClusterShape::pair_in_line;
  static constexpr int32_t kBoxCols = 32;
  static constexpr double kTraffic = 1.04;
  static constexpr double kBusyTraffic = 1.1;
  static constexpr double kSharedTraffic = 1.13;
};

struct PingPong128x192 {
  static constexpr const char* kName = "ping_pong_128x192";
  static constexpr int32_t kRows = 128, kCols = 192, kStages = 5;
  static constexpr ClusterShape kCluster = ClusterShape::stacked_pair;
  static constexpr bool kIsPingPong = true;
  static constexpr int32_t kBoxCols = 32;
  static constexpr int32_t kExposedClocks = 550;
  static constexpr double kTraffic = 1.0;
  static constexpr double kBusyTraffic = 1.0;
  static constexpr double kSharedTraffic = 1.38;
  static constexpr int32_t kCopyStages = 2;
  static constexpr int32_t kSpareBytes = 0;
  static constexpr int32_t kLoaderRegisters = 56;
};

struct PingPong128x128 {
  static constexpr const char* kName = "ping_pong_128x128";
  static constexpr int32_t kRows = 128, kCols = 128, kStages = 6;
  static constexpr ClusterShape kCluster = ClusterShape::pair_in_line;
  static constexpr bool kIsPingPong = true;
  static constexpr int32_t kBoxCols = 64;
  static constexpr int32_t kExposedClocks = 550;
  static constexpr double kTraffic = 1.04;
  static constexpr double kBusyTraffic = 1.04;
  static constexpr double kSharedTraffic = 1.45;
  static constexpr int32_t kCopyStages = 4;
  static constexpr int32_t kSpareBytes = 0;
  static constexpr int32_t kLoaderRegisters = 56;
};

struct PingPong64x128 {
  static constexpr const char* kName = "ping_pong_64x128";
  static constexpr int32_t kRows = 64, kCols = 128, kStages = 8;
  static constexpr ClusterShape kCluster = ClusterShape::single;
  static constexpr bool kIsPingPong = true;
  static constexpr int32_t kBoxCols = 64;
  static constexpr int32_t kExposedClocks = 550;
  static constexpr double kTraffic = 1.15;
  static constexpr double kBusyTraffic = 3.7;
  static constexpr double kSharedTraffic = 2.8;
  static constexpr int32_t kCopyStages = 4;
  static constexpr int32_t kSpareBytes = 0;
  static constexpr int32_t kLoaderRegisters = 56;
};

constexpr int32_t kCopyPieceBytes = 4096;  // that a warp beside the tiles copies at once

// A form whose CTAs have room for a copying warp beside the tiles, which smaller boxes of the epilogue leave: for as many
// pieces as fit.
template <class Base>
struct WithSpareRoom : Base {
  static constexpr int32_t kBoxCols = 32;
  static constexpr int32_t kSpareBytes = Base::kCopyStages * kCopyPieceBytes + 256;
};

// A form whose CTAs have room for a few words beside the tiles, and registers for warps there that add up: what they have
// under way at once is what their rate is made of.
template <class Base>
struct WithRoomForSums : Base {
  static constexpr int32_t kSpareBytes = 256;
  static constexpr int32_t kLoaderRegisters = 136;
};

// The same for where the rows of a tile go, one by one.
template <class Base>
struct WithRoomForRows : Base {
  static constexpr double kSharedTraffic = Base::kIsPingPong ? 1.3 : Base::kSharedTraffic;
  static constexpr int32_t kSpareBytes = 1088;
  static constexpr int32_t kLoaderRegisters = 120;
};

// Columns of a row of shared memory and steps of K in a stage: 128 bytes, the width of the swizzle.
constexpr int32_t kStageDepth = 64;
constexpr int32_t kElementBytes = 2;
constexpr int32_t kSwizzleBytes = kStageDepth * kElementBytes;
constexpr int32_t kMmaRows = 64;
constexpr int32_t kMmaDepth = 16;
constexpr int32_t kWarpgroupThreads = 128;
constexpr int32_t kGemmThreads = 3 * kWarpgroupThreads;
constexpr int32_t kComputeGroups = 2;
constexpr int32_t kAllRegisters = 504;  // of a thread of each warpgroup, together: what a kernel is launched with
constexpr int32_t kMaxSharedBytes = 232448;

// What results are: of the type of the operands, of the other one of 16 bits, or fp32. A box of the epilogue has half as
// many columns of fp32.
enum class OutType : uint8_t { as_operands, other_narrow, fp32 };
constexpr OutType out_type(DataType results, DataType operands) {
  if (results == DataType::fp32) return OutType::fp32;
  return results == operands ? OutType::as_operands : OutType::other_narrow;
}

// What follows from a form. Shared memory: stages (A, then B) | boxes of the epilogue | barriers | mark | what
// is added to the columns of a tile, in fp32 | permits | spare.
template <class Form>
struct FormPlan {
  static constexpr int32_t kClusterRowTiles = Form::kCluster == ClusterShape::stacked_pair ? 2 : 1;
  static constexpr int32_t kClusterColTiles = Form::kCluster == ClusterShape::pair_in_line ? 2 : 1;
  static constexpr int32_t kClusterCtas = kClusterRowTiles * kClusterColTiles;

  static constexpr int32_t kGroupsPerTile = Form::kIsPingPong ? 1 : kComputeGroups;
  static constexpr int32_t kGroupRows = Form::kRows / kGroupsPerTile;
  static constexpr int32_t kGroupBlocks = kGroupRows / kMmaRows;

  static constexpr int32_t kABytes = Form::kRows * kSwizzleBytes;
  static constexpr int32_t kBBytes = Form::kCols * kSwizzleBytes;
  static constexpr int32_t kStageBytes = kABytes + kBBytes;
  static constexpr int32_t kBPanelBytes = kStageDepth * kSwizzleBytes;  // N-major B: 64 columns
  static constexpr int32_t kStageReleases = kGroupsPerTile * kWarpgroupThreads / 32 * kClusterCtas;

  static constexpr int32_t kComputeRegisters = (kAllRegisters - Form::kLoaderRegisters) / kComputeGroups;

  static constexpr int32_t kBoxes = 2;  // of each warpgroup
  static constexpr int32_t kBoxBytes = kMmaRows * Form::kBoxCols * kElementBytes;

  static constexpr int32_t kBoxOffset = Form::kStages * kStageBytes;
  static constexpr int32_t kBarrierOffset = kBoxOffset + kComputeGroups * kBoxes * kBoxBytes;
  static constexpr int32_t kMarkOffset = kBarrierOffset + 16 * Form::kStages;
  static constexpr int32_t kAddendOffset = kMarkOffset + 16;
  static constexpr int32_t kAddendBytes = Form::kCols * 4;  // of each warpgroup
  static constexpr int32_t kPermitOffset = kAddendOffset + kComputeGroups * kAddendBytes;
  static constexpr int32_t kPermitBytes = 64;
  static constexpr int32_t kSpareOffset = (kPermitOffset + kPermitBytes + 127) / 128 * 128;
  static constexpr int32_t kSharedBytes =
      Form::kSpareBytes > 0 ? kSpareOffset + Form::kSpareBytes : kPermitOffset + kPermitBytes;

  static_assert(Form::kRows == kGroupsPerTile * kGroupBlocks * kMmaRows);
  static_assert(Form::kCols % Form::kBoxCols == 0 && Form::kCols % 64 == 0);
  static_assert(Form::kBoxCols == 64 || Form::kBoxCols == 32);
  static_assert(kSharedBytes <= kMaxSharedBytes);
  static_assert(Form::kLoaderRegisters % 8 == 0 && kComputeRegisters % 8 == 0);
};

// The same for code that looks at several forms.
struct FormNumbers {
  const char* name;
  int32_t rows, cols;  // of a tile
  int32_t cluster_row_tiles, cluster_col_tiles;
  int32_t launch_ctas;  // CTAs that are launched as one cluster
  int32_t box_cols;
  int32_t shared_bytes;
  int32_t exposed_clocks;  // of a tile, that no other work hides
  // What reading more bytes a flop costs: when each SM has one tile, and when all have many and the cache is asked for
  // operands by all of them all the time (about 25 bytes a clock and SM is what it gives then).
  double traffic, busy_traffic;
  // The same when the SMs read operands of several ranks, which have no b in common: about 25 bytes a clock and SM again,
  // and forms that read less a flop lose less.
  double shared_traffic;

  constexpr int32_t cluster_ctas() const { return cluster_row_tiles * cluster_col_tiles; }
  constexpr int32_t work_rows() const { return rows * cluster_row_tiles; }  // of the tiles of a cluster together
  constexpr int32_t work_cols() const { return cols * cluster_col_tiles; }
};

template <class Form>
constexpr FormNumbers form_numbers() {
  using Plan = FormPlan<Form>;
  // Kernels that share a GPU take SMs in pairs, or what is left to one of them could not hold its clusters.
  const int32_t launch_ctas = Form::kSpareBytes > 0 && Plan::kClusterCtas < 2 ? 2 : Plan::kClusterCtas;
  return {Form::kName,        Form::kRows,         Form::kCols,        Plan::kClusterRowTiles, Plan::kClusterColTiles,
          launch_ctas,        Form::kBoxCols,      Plan::kSharedBytes, Form::kExposedClocks,   Form::kTraffic,
          Form::kBusyTraffic, Form::kSharedTraffic};
}

constexpr double kFlopsPerClock = 4096;  // of an SM's tensor cores, in elements of 16 bits

enum class CacheUse : uint8_t { little, busy, shared };
// Of tiles of which an SM has so many, on a GPU that so many ranks share.
constexpr CacheUse cache_use(int32_t ranks_per_gpu, int64_t rounds) {
  if (ranks_per_gpu > 1) return CacheUse::shared;
  return rounds > 1 ? CacheUse::busy : CacheUse::little;
}

// Clocks of one tile on its SM: its matrix work and what it exposes.
constexpr double tile_clocks(const FormNumbers& form, int64_t depth, CacheUse use) {
  const int64_t steps = (depth + kStageDepth - 1) / kStageDepth;
  const double step_clocks = 2.0 * form.rows * form.cols * kStageDepth / kFlopsPerClock;
  const double traffic = use == CacheUse::little ? form.traffic
                         : use == CacheUse::busy ? form.busy_traffic
                                                 : form.shared_traffic;
  return static_cast<double>(steps) * step_clocks * traffic + form.exposed_clocks;
}

// Clocks that the busiest SM needs by the two-term model: its rounds of tiles.
constexpr double model_clocks(const FormNumbers& form, int64_t rows, int64_t cols, int64_t depth, int32_t sms) {
  const int64_t row_works = (rows + form.work_rows() - 1) / form.work_rows();
  const int64_t col_works = (cols + form.work_cols() - 1) / form.work_cols();
  const int64_t workers = sms / form.cluster_ctas() > 0 ? sms / form.cluster_ctas() : 1;
  const int64_t rounds = (row_works * col_works + workers - 1) / workers;
  return static_cast<double>(rounds) * tile_clocks(form, depth, cache_use(1, rounds));
}

}  // namespace tilewire

// Places in shared memory and in the matrices, of one CTA of a form. The only index math of the tile kernels.
#pragma once

#include "device/ptx/cluster.cuh"
#include "device/ptx/tma.cuh"
#include "device/sync/permit_ring.cuh"
#include "device/sync/pipeline.cuh"
#include "device/tile/tile_form.h"

#include <cuda.h>

namespace tilewire {

struct TileOrigin {
  int32_t row;
  int32_t col;
};

// A matrix of several behind each other, as copies see it (encode_slot_map).
struct SlotOfMap {
  const CUtensorMap* map;
  int32_t slot;
};

// Where the tile of a work goes: into a matrix. All by the thread that stores for a computing warpgroup.
struct MatrixTarget {
  const CUtensorMap* map;

  // A box of shared memory, whose first element belongs at `at`.
  TILEWIRE_DEVICE void store(uint32_t box, TileOrigin at) const { ptx::tma_store(map, box, at.col, at.row); }
  // When all boxes of the warpgroup's part are on their way. `mark`: that of the tile.
  TILEWIRE_DEVICE void finish(uint32_t) const {}
};

// The tensor maps of a kernel: A, and B and D of each weight. Kernel parameters, never copied.
template <int kWeights>
struct TileMaps {
  CUtensorMap a;
  CUtensorMap b[kWeights];
  CUtensorMap d[kWeights];

  // The map in which row `row` of A lies.
  template <class Work>
  TILEWIRE_DEVICE const CUtensorMap* a_of(const Work&, int32_t&) const {
    return &a;
  }
  template <class Work>
  TILEWIRE_DEVICE const CUtensorMap* b_of(const Work& w) const {
    return &b[w.columns.weight];
  }
  template <class Work>
  TILEWIRE_DEVICE MatrixTarget target(const Work& w) const {
    return {&d[w.columns.weight]};
  }
  TILEWIRE_DEVICE void prefetch() const {
    ptx::prefetch_tensor_map(&a);
    for (int32_t weight = 0; weight < kWeights; ++weight) {
      ptx::prefetch_tensor_map(&b[weight]);
      ptx::prefetch_tensor_map(&d[weight]);
    }
  }
};

// The same for a kernel that chooses A when it runs: of works that are `from_input` it lies where the caller has it.
struct TileMapView {
  const CUtensorMap& a;
  const CUtensorMap& input;
  int32_t input_row;  // of the first row of `input` among those of A
  const CUtensorMap* b;
  const CUtensorMap* d;
  int32_t weights;  // 0: no map is used

  // `row` becomes one of the map.
  template <class Work>
  TILEWIRE_DEVICE const CUtensorMap* a_of(const Work& w, int32_t& row) const {
    if (!w.from_input) return &a;
    row -= input_row;
    return &input;
  }
  template <class Work>
  TILEWIRE_DEVICE const CUtensorMap* b_of(const Work& w) const {
    return b + w.columns.weight;
  }
  template <class Work>
  TILEWIRE_DEVICE MatrixTarget target(const Work& w) const {
    return {d + w.columns.weight};
  }
  TILEWIRE_DEVICE void prefetch() const {
    if (weights == 0) return;
    ptx::prefetch_tensor_map(&a);
    ptx::prefetch_tensor_map(&input);
    for (int32_t weight = 0; weight < weights; ++weight) {
      ptx::prefetch_tensor_map(b + weight);
      ptx::prefetch_tensor_map(d + weight);
    }
  }
};

// A role whose works are tiles of a CTA. CTAs of a cluster that share an operand then have works which do.
template <class Role>
concept IsOfCta = requires {
  requires Role::kIsOfCta;
};

template <class Form>
class SharedTiles {
 public:
  using Plan = FormPlan<Form>;

  TILEWIRE_DEVICE explicit SharedTiles(const void* base) : base_(ptx::shared_address(base)) {
    if constexpr (Plan::kClusterCtas > 1) cta_ = ptx::cta_rank_in_cluster();
  }

  TILEWIRE_DEVICE uint32_t a(uint32_t stage) const { return base_ + stage * Plan::kStageBytes; }
  TILEWIRE_DEVICE uint32_t b(uint32_t stage) const { return a(stage) + Plan::kABytes; }
  TILEWIRE_DEVICE uint32_t box(uint32_t group, uint32_t box) const {
    return base_ + Plan::kBoxOffset + (group * Plan::kBoxes + box) * Plan::kBoxBytes;
  }
  TILEWIRE_DEVICE uint32_t addends(uint32_t group) const {
    return base_ + Plan::kAddendOffset + group * Plan::kAddendBytes;
  }
  TILEWIRE_DEVICE PipelineBarriers<kPermits> permits() const {
    static_assert(PipelineBarriers<kPermits>::kBytes == Plan::kPermitBytes);
    return {base_ + Plan::kPermitOffset};
  }
  TILEWIRE_DEVICE PipelineBarriers<Form::kStages> barriers() const { return {base_ + Plan::kBarrierOffset}; }

  TILEWIRE_DEVICE uint32_t spare() const { return base_ + Plan::kSpareOffset; }

  // The mark of unfinished tiles: bits that make NaN of every value from the tile on before whose stages it was set.
  static constexpr uint32_t kNanPair = 0xffffffff;
  TILEWIRE_DEVICE void clear_mark() const { ptx::store_shared(base_ + Plan::kMarkOffset, 0); }
  TILEWIRE_DEVICE uint32_t mark() const { return ptx::load_shared(base_ + Plan::kMarkOffset); }
  // In all CTAs of the cluster, since what one loads may go to both.
  TILEWIRE_DEVICE void set_marks() const {
    ptx::store_shared(base_ + Plan::kMarkOffset, kNanPair);
    if constexpr (Plan::kClusterCtas > 1) {
      ptx::store_in_cluster(ptx::map_to_cta(base_ + Plan::kMarkOffset, cta_ ^ 1), kNanPair);
      ptx::fence_cluster();
    }
  }

  TILEWIRE_DEVICE uint32_t cta() const { return cta_; }  // in the cluster
  TILEWIRE_DEVICE static int32_t worker() { return static_cast<int32_t>(blockIdx.x) / Plan::kClusterCtas; }

  // Where the tile of this CTA begins in a work of its cluster, or (Role::kIsOfCta) of this CTA alone.
  template <class Role>
  TILEWIRE_DEVICE TileOrigin origin(const typename Role::Work& w) const {
    const int32_t cta = IsOfCta<Role> ? 0 : static_cast<int32_t>(cta_);
    return {static_cast<int32_t>(w.rows.begin) + (Plan::kClusterRowTiles > 1 ? cta * Form::kRows : 0),
            static_cast<int32_t>(w.columns.begin) + (Plan::kClusterColTiles > 1 ? cta * Form::kCols : 0)};
  }

 private:
  uint32_t base_;
  uint32_t cta_ = 0;
};

}  // namespace tilewire

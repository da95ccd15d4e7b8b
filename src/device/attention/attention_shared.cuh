// What the warps of a CTA that computes attention share: where all lies, and what the loader tells the others.
#pragma once

#include "device/attention/attention_form.h"
#include "device/ptx/cluster.cuh"
#include "device/ptx/control.cuh"
#include "device/sync/pipeline.cuh"

#include <cuda.h>

namespace tilewire {

// Of a step: the keys that are loaded into a stage, and how they are masked.
struct StepNote {
  int32_t first = 0;  // where the first key is in the whole sequence; those behind it follow
  int32_t keys = 0;   // how many there are
  int32_t row = 0;    // of the first key among those of all sources
  int32_t flags = 0;
};
// What of it all steps look at: flags, and how many keys there are above them.
using StepMark = int32_t;
constexpr int32_t kMarkedKeys = 16;  // bits below them
TILEWIRE_DEVICE constexpr int32_t keys_of(StepMark mark) { return mark >> kMarkedKeys; }
constexpr int32_t kLastStep = 1;       // of its item
constexpr int32_t kMaskedStep = 2;     // some row does not see some key
constexpr int32_t kScatteredStep = 4;  // the keys do not follow each other: where each is says a table
constexpr int32_t kBrokenStep = 8;     // what it needed did not come: the result is NaN
constexpr int32_t kFirstStep = 16;     // of its item

// Of a tile of queries.
struct ItemNote {
  int32_t row = 0;
  int32_t head = 0;
  int32_t batch = 0;  // below 0: there are no more items
  int32_t number = 0;
};

// Where the values of a step lie, whose keys are loaded: nullptr if it has none.
struct ValueSource {
  const CUtensorMap* map = nullptr;
  int32_t row = 0;
  int32_t head = 0;
  int32_t batch = 0;
};

template <class Form>
class SharedAttention {
 public:
  using Plan = AttentionPlan<Form>;

  TILEWIRE_DEVICE explicit SharedAttention(const void* base) : base_(ptx::shared_address(base)) {}

  TILEWIRE_DEVICE uint32_t queries(uint32_t buffer, int32_t panel, int32_t group) const {
    return base_ + buffer * Plan::kQueryBytes + panel * Plan::kQueryPanelBytes + group * 64 * Plan::kLineBytes;
  }
  TILEWIRE_DEVICE uint32_t keys(uint32_t stage) const { return base_ + Plan::kKeyOffset + stage * Plan::kStepBytes; }
  TILEWIRE_DEVICE uint32_t values(uint32_t stage) const {
    return base_ + Plan::kValueOffset + stage * Plan::kStepBytes;
  }
  // Not kept in a register beside the base by computing warps, which look there once.
  TILEWIRE_DEVICE uint32_t spare() const { return ptx::made_anew(base_) + Plan::kSpareOffset; }
  TILEWIRE_DEVICE uint32_t feeder_room() const { return base_ + Plan::kFeederOffset; }
  TILEWIRE_DEVICE uint32_t mask_room(int32_t warp) const { return base_ + Plan::kMaskOffset + warp * Plan::kMaskBytes; }

  TILEWIRE_DEVICE PipelineBarriers<Form::kStages> key_barriers() const { return {base_ + Plan::kBarrierOffset}; }
  TILEWIRE_DEVICE PipelineBarriers<Form::kStages> value_barriers() const {
    return {base_ + Plan::kBarrierOffset + Plan::kBarrierBytes};
  }
  TILEWIRE_DEVICE PipelineBarriers<Plan::kQueries> query_barriers() const {
    return {base_ + Plan::kBarrierOffset + 2 * Plan::kBarrierBytes};
  }

  TILEWIRE_DEVICE void tell_step(uint32_t stage, const StepNote& note) const {
    ptx::store_shared_four(step_note(stage), {note.flags | note.keys << kMarkedKeys, note.first, note.row, 0});
  }
  TILEWIRE_DEVICE StepMark step_mark(uint32_t stage) const {
    return static_cast<StepMark>(ptx::load_shared(step_note(stage)));
  }
  TILEWIRE_DEVICE StepNote step(uint32_t stage) const {
    const int4 four = ptx::load_shared_four(step_note(stage));
    return {four.y, keys_of(four.x), four.z, four.x};
  }
  TILEWIRE_DEVICE void tell_item(uint32_t buffer, const ItemNote& note) const {
    ptx::store_shared_four(item_note(buffer), {note.row, note.head, note.batch, note.number});
  }
  TILEWIRE_DEVICE ItemNote item(uint32_t buffer) const {
    const int4 four = ptx::load_shared_four(item_note(buffer));
    return {four.x, four.y, four.z, four.w};
  }

  // What the loader keeps for itself: it has few registers.
  TILEWIRE_DEVICE void keep_values(const ValueSource& from) const {
    const auto map = reinterpret_cast<uint64_t>(from.map);
    ptx::store_shared_four(kept(), {static_cast<int32_t>(map), static_cast<int32_t>(map >> 32), from.row, from.head});
    ptx::store_shared(kept() + 16, static_cast<uint32_t>(from.batch));
  }
  TILEWIRE_DEVICE ValueSource kept_values() const {
    const uint4 four = ptx::load_shared_quad(kept());
    return {reinterpret_cast<const CUtensorMap*>(uint64_t{four.y} << 32 | four.x), static_cast<int32_t>(four.z),
            static_cast<int32_t>(four.w), static_cast<int32_t>(ptx::load_shared(kept() + 16))};
  }

  // By one thread, before a barrier of all. Queries are given back by one thread a group, whose store has read them.
  TILEWIRE_DEVICE void init() const {
    key_barriers().init(4 * Form::kGroups);
    value_barriers().init(4 * Form::kGroups);
    query_barriers().init(Form::kGroups);
  }

 private:
  TILEWIRE_DEVICE uint32_t step_note(uint32_t stage) const {
    return base_ + Plan::kNoteOffset + stage * Plan::kNoteBytes;
  }
  TILEWIRE_DEVICE uint32_t item_note(uint32_t buffer) const {
    return step_note(Form::kStages) + buffer * Plan::kNoteBytes;
  }
  TILEWIRE_DEVICE uint32_t kept() const { return item_note(Plan::kQueries); }

  uint32_t base_;
};

}  // namespace tilewire

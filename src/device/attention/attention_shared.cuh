// What the warps of a CTA that computes attention share: where all lies, and what the loader tells the others.
#pragma once

#include "device/attention/attention_form.h"
#include "device/ptx/cluster.cuh"
#include "device/sync/pipeline.cuh"

namespace tilewire {

// Of a step: the keys that are loaded into a stage, and how they are masked.
struct StepNote {
  int32_t first = 0;  // where the first key is in the whole sequence; those behind it follow
  int32_t keys = 0;   // how many there are
  int32_t row = 0;    // of the first key among those of all sources
  int32_t flags = 0;
};
constexpr int32_t kLastStep = 1;       // of its item
constexpr int32_t kMaskedStep = 2;     // some row does not see some key
constexpr int32_t kScatteredStep = 4;  // the keys do not follow each other: where each is says a table
constexpr int32_t kBrokenStep = 8;     // what it needed did not come: the result is NaN

// Of a tile of queries.
struct ItemNote {
  int32_t row = 0;
  int32_t head = 0;
  int32_t batch = 0;  // below 0: there are no more items
  int32_t number = 0;
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
  TILEWIRE_DEVICE uint32_t spare() const { return base_ + Plan::kSpareOffset; }
  TILEWIRE_DEVICE uint32_t feeder_room() const { return base_ + Plan::kFeederOffset; }

  TILEWIRE_DEVICE PipelineBarriers<Form::kStages> key_barriers() const { return {base_ + Plan::kBarrierOffset}; }
  TILEWIRE_DEVICE PipelineBarriers<Form::kStages> value_barriers() const {
    return {base_ + Plan::kBarrierOffset + Plan::kBarrierBytes};
  }
  TILEWIRE_DEVICE PipelineBarriers<Plan::kQueries> query_barriers() const {
    return {base_ + Plan::kBarrierOffset + 2 * Plan::kBarrierBytes};
  }

  TILEWIRE_DEVICE void tell_step(uint32_t stage, const StepNote& note) const {
    ptx::store_shared_four(step_note(stage), {note.first, note.keys, note.row, note.flags});
  }
  TILEWIRE_DEVICE StepNote step(uint32_t stage) const {
    const int4 four = ptx::load_shared_four(step_note(stage));
    return {four.x, four.y, four.z, four.w};
  }
  TILEWIRE_DEVICE void tell_item(uint32_t buffer, const ItemNote& note) const {
    ptx::store_shared_four(item_note(buffer), {note.row, note.head, note.batch, note.number});
  }
  TILEWIRE_DEVICE ItemNote item(uint32_t buffer) const {
    const int4 four = ptx::load_shared_four(item_note(buffer));
    return {four.x, four.y, four.z, four.w};
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

  uint32_t base_;
};

}  // namespace tilewire

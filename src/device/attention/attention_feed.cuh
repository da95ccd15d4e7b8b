// The loader of attention, by one thread: tiles of queries, and steps of keys and values, in the order in which the
// computing warps want them: the keys of a step, then the values of the step before.
#pragma once

#include "device/attention/attention_shared.cuh"
#include "device/ptx/tma.cuh"

namespace tilewire {

// Where the keys and values of a step lie: a box from each map. Coordinates as [batch, head, row].
struct StepSource {
  const CUtensorMap* keys = nullptr;
  const CUtensorMap* values = nullptr;
  int32_t key_row = 0;
  int32_t value_row = 0;
  int32_t head = 0;
  int32_t batch = 0;
};

template <class Form>
class AttentionFeed {
 public:
  using Plan = AttentionPlan<Form>;

  TILEWIRE_DEVICE explicit AttentionFeed(const SharedAttention<Form>& shared)
      : shared_(shared),
        keys_(shared.key_barriers()),
        values_(shared.value_barriers()),
        queries_(shared.query_barriers()) {}

  TILEWIRE_DEVICE void begin_item(const CUtensorMap* queries, const ItemNote& item) {
    const uint32_t buffer = queries_.wait_free();
    shared_.tell_item(buffer, item);
    const uint32_t full = queries_.announce(Plan::kQueryBytes);
#pragma unroll
    for (int32_t panel = 0; panel < Plan::kPanels; ++panel) {
      ptx::tma_load(shared_.queries(buffer, panel, 0), queries, full, 64 * panel, item.row, item.head, item.batch);
    }
    queries_.commit();
    item_flags_ = kFirstStep;
  }
  // A step of the item, of one key at least.
  TILEWIRE_DEVICE void add(const StepSource& source, const StepNote& note) {
    const uint32_t stage = keys_.wait_free();
    shared_.tell_step(stage, {note.first, note.keys, note.row, note.flags | item_flags_});
    item_flags_ = (note.flags & kLastStep) != 0 ? kLastStep : 0;
    const bool is_empty = source.keys == nullptr;
    const uint32_t full = keys_.announce(is_empty ? 0 : Plan::kStepBytes);
    if (!is_empty) load(shared_.keys(stage), source.keys, full, source.key_row, source.head, source.batch);
    keys_.commit();
    load_values();
    shared_.keep_values({source.values, source.value_row, source.head, source.batch});
    has_values_ = true;
  }
  // An item whose last step was not known to be that has one more without keys, and so has one without any step: rows which
  // see nothing need no way of their own.
  TILEWIRE_DEVICE void end_item(int32_t flags) {
    if (item_flags_ != kLastStep) add({}, {.flags = kMaskedStep | kLastStep | flags});
  }
  // The values too of the step before. Before the thread waits for anything that others may bring late.
  TILEWIRE_DEVICE void load_values() {
    if (!has_values_) return;
    has_values_ = false;
    const uint32_t stage = values_.wait_free();
    const ValueSource from = shared_.kept_values();
    const bool is_empty = from.map == nullptr;
    const uint32_t full = values_.announce(is_empty ? 0 : Plan::kStepBytes);
    if (!is_empty) load(shared_.values(stage), from.map, full, from.row, from.head, from.batch);
    values_.commit();
  }
  // Until all that was to be loaded has been, so that it may be overwritten.
  TILEWIRE_DEVICE void wait_loaded() {
    load_values();
    keys_.wait_loaded();
    values_.wait_loaded();
  }
  // No more items. First that, then the last values: whoever waits for them knows then that they are the last.
  TILEWIRE_DEVICE void finish() {
    const uint32_t buffer = queries_.wait_free();
    shared_.tell_item(buffer, {.batch = -1});
    queries_.announce(0);
    queries_.commit();
    load_values();
  }

 private:
  TILEWIRE_DEVICE static void load(uint32_t to, const CUtensorMap* map, uint32_t full, int32_t row, int32_t head,
                                   int32_t batch) {
#pragma unroll
    for (int32_t panel = 0; panel < Plan::kPanels; ++panel) {
      ptx::tma_load(to + panel * Plan::kStepPanelBytes, map, full, 64 * panel, row, head, batch);
    }
  }

  const SharedAttention<Form>& shared_;
  PipelineProducer<Form::kStages> keys_, values_;
  PipelineProducer<Plan::kQueries> queries_;
  int32_t item_flags_ = 0;  // kFirstStep: there was no step yet. kLastStep: there comes none
  bool has_values_ = false;
};

}  // namespace tilewire

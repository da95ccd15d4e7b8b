// The compute role's loader and its mask: items of the schedule to the steps that the computing warps take.
#pragma once

#include "device/attention/attention_feed.cuh"
#include "device/attention/online_softmax.cuh"
#include "device/comm/call_gate.cuh"
#include "ops/attention/device_parameters.cuh"

namespace tilewire::attention {

// Hides scores of keys that a row does not see, by the tables of schedule and steps.
class RowMask {
 public:
  TILEWIRE_DEVICE explicit RowMask(const FusedParameters& p) : p_(p) {}

  // By whole warps, which stay together: what a lane does not see it looks at all the same.
  template <int kScores>
  TILEWIRE_DEVICE void apply(float (&s)[kScores], const StepNote& note, int32_t row) const {
    static_assert(kScores <= 64);
    const auto first_column = static_cast<int32_t>(2 * (threadIdx.x % 4));
    const KeySpan spans[2] = {span_of(row), span_of(row + 8)};
    uint32_t seen[2];
    if ((__shfl_sync(0xffffffff, note.flags, 0) & kScatteredStep) != 0) {
      look_up<kScores / 2>(seen, spans, note, first_column);
    } else {
#pragma unroll
      for (int32_t r = 0; r < 2; ++r) {
        const int32_t begin = column_of(spans[r].begin - note.first), end = column_of(spans[r].end - note.first);
        seen[r] = columns_before(min(end, note.keys) - first_column) & ~columns_before(begin - first_column);
      }
    }
#pragma unroll
    for (int32_t i = 0; i < kScores; ++i) {
      if ((seen[row_of_register(i)] >> (i / 4 * 2 + i % 2) & 1) == 0) s[i] = -INFINITY;
    }
  }

 private:
  // Where each key is says the table. Bit i: the i-th column of the thread.
  template <int kColumns>
  TILEWIRE_DEVICE void look_up(uint32_t (&seen)[2], const KeySpan (&spans)[2], const StepNote& note,
                               int32_t first_column) const {
    const int64_t* positions = p_.schedule.key_positions + note.row;
    seen[0] = seen[1] = 0;
#pragma unroll 1
    for (int32_t i = 0; i < kColumns; ++i) {
      const int32_t column = i / 2 * 8 + i % 2 + first_column;
      const int64_t position = positions[min(column, note.keys - 1)];
#pragma unroll
      for (int32_t r = 0; r < 2; ++r) {
        seen[r] |=
            static_cast<uint32_t>((column < note.keys) & (spans[r].begin <= position) & (position < spans[r].end)) << i;
      }
    }
    __syncwarp();
  }
  // Of the thread's columns, counted from its first one, those below `end`.
  TILEWIRE_DEVICE static uint32_t columns_before(int32_t end) {
    const int32_t within = max(end, 0), count = min(within / 8 * 2 + min(within % 8, 2), 32);
    return static_cast<uint32_t>((uint64_t{1} << count) - 1);
  }
  // Of an own query. Rows behind the last one are not stored.
  TILEWIRE_DEVICE KeySpan span_of(int32_t row) const {
    return p_.schedule.query_spans[min(row, static_cast<int32_t>(p_.schedule.rows) - 1)];
  }
  TILEWIRE_DEVICE static int32_t column_of(int64_t distance) {
    constexpr int64_t kFar = 1 << 20;
    return static_cast<int32_t>(min(max(distance, -kFar), kFar));
  }

  const FusedParameters& p_;
};

template <class Form>
class ItemLoader {
 public:
  TILEWIRE_DEVICE ItemLoader(const FusedParameters& p, const CallSpace& space, const SharedAttention<Form>& shared)
      : p_(p),
        space_(space),
        gate_(space, kComputeRole, 0),
        feed_(shared),
        role_(p.schedule, static_cast<int32_t>(blockIdx.x)) {}

  // By one thread.
  TILEWIRE_DEVICE void run() {
    for (ItemWork w; role_.next(w);) {
      if (w.is_end) {
        end_units(w);
        continue;
      }
      if (w.needs > 2 * w.blocks.count) gate_.pass_for_copies(role_, w);  // the whole gather
      if (w.is_first) begin_item(w);
      add_steps(w);
      if (w.is_last) feed_.end_item(broken());
    }
    feed_.finish();
  }

 private:
  TILEWIRE_DEVICE int32_t broken() { return gate_.waiter().has_given_up() ? kBrokenStep : 0; }

  TILEWIRE_DEVICE void begin_item(const ItemWork& w) {
    feed_.begin_item(&p_.q, {.row = static_cast<int32_t>(p_.schedule.tile_range(w.tile).begin),
                             .head = w.pair % p_.kv_heads * p_.schedule.heads + w.head,
                             .batch = w.pair / p_.kv_heads,
                             .number = static_cast<int32_t>(w.item)});
  }
  TILEWIRE_DEVICE void add_steps(const ItemWork& w) {
    const Schedule& s = p_.schedule;
    StepWalk walk(s, p_.steps, w.tile, w.pair, w.source, w.blocks);
    int32_t chunk = -1;
    StepSource from;
    for (StepWalk::Step step; walk.next(step);) {
      if (step.chunk.chunk.value != chunk) {
        chunk = step.chunk.chunk.value;
        pass(step.chunk);
      }
      place(step, w.pair, from);
      const int32_t flags = (step.is_masked ? kMaskedStep : 0) | (step.keys.is_run != 0 ? 0 : kScatteredStep);
      feed_.add(from, {.first = step.keys.least,
                       .keys = step.keys.keys,
                       .row = static_cast<int32_t>(s.blocks.row_begin[w.source.value] + step.row),
                       .flags = flags});
    }
  }
  // Own keys are read where the caller has them; others when they have come.
  TILEWIRE_DEVICE void pass(ChunkRef c) {
    if (c.source == p_.schedule.me()) return;
    feed_.pass_on(0);
    if (!gate_.waiter().has_given_up() && !gate_.has_come(p_.schedule.arrived(c))) feed_.load_values();
    gate_.pass_word_for_copies(p_.schedule.begun(c.source));
    gate_.pass_word_for_copies(p_.schedule.arrived(c));
  }
  TILEWIRE_DEVICE void place(const StepWalk::Step& step, int32_t pair, StepSource& from) const {
    if (step.chunk.source == p_.schedule.me()) {
      const auto row = static_cast<int32_t>(step.row);
      from = {&p_.k, &p_.v, row, row, pair % p_.kv_heads, pair / p_.kv_heads};
      return;
    }
    const CUtensorMap* map = &p_.received[ArenaLayout::half_of(space_.epoch())];
    const int64_t offset = p_.schedule.offset(p_.schedule.me(), step.chunk) - first_line_offset(p_.schedule);
    const auto line = static_cast<int32_t>(offset / p_.line_bytes + step.row - step.rows.begin);
    from = {map, map, line, line + static_cast<int32_t>(step.rows.rows()), 0, 0};
  }
  // Slots may be written again when all has been read from them.
  TILEWIRE_DEVICE void end_units(const ItemWork& w) {
    feed_.wait_loaded();
    if (gate_.waiter().has_given_up()) return;
    for (int32_t i = 0; i < w.publishes; ++i) space_.publish(role_.publish(w, i));
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  CallGate gate_;
  AttentionFeed<Form> feed_;
  ComputeRole role_;
};

}  // namespace tilewire::attention

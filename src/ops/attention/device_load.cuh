// The compute role's loader and its mask: items of the schedule to the steps
// that the computing warps take.
#pragma once

#include "device/attention/attention_feed.cuh"
#include "device/attention/online_softmax.cuh"
#include "device/comm/call_gate.cuh"
#include "device/tile/deal.cuh"
#include "ops/attention/device_parameters.cuh"

namespace tilewire::attention {

// Hides scores of keys that a row does not see, by the tables of schedule and
// steps.
class RowMask {
 public:
  TILEWIRE_DEVICE explicit RowMask(const FusedParameters& p) : p_(p) {}

  // By whole warps, which stay together: what a lane does not see it looks at
  // all the same.
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

// Items that CTAs take when they are free for one (docs/decisions/0035), as a
// deal of ItemRole.
class ItemsWhenFree {
 public:
  TILEWIRE_DEVICE ItemsWhenFree(const UnitCounter& counter, int32_t worker) : counter_(counter), worker_(worker) {}

  TILEWIRE_DEVICE int64_t first() const { return worker_; }
  // What next() is going to give, a while before: it takes a way to memory and
  // back. Each item is asked behind once, so the counter is at 0 at the end of
  // a launch.
  TILEWIRE_DEVICE void ask() {
    if (has_asked_) return;
    taken_ = ptx::count_around(counter_.taken, counter_.units - 1);
    has_asked_ = true;
  }
  TILEWIRE_DEVICE int64_t next() {
    ask();
    has_asked_ = false;
    return int64_t{counter_.clusters} + taken_;
  }

 private:
  const UnitCounter& counter_;
  int32_t worker_;
  uint32_t taken_ = 0;
  bool has_asked_ = false;
};

// Bits in shared memory, of one thread: chunks that it has seen arrive. Those with numbers past the bits it looks for anew.
class SeenChunks {
 public:
  TILEWIRE_DEVICE SeenChunks(uint32_t room, int32_t bytes) : room_(room), chunks_(8 * bytes) {}

  TILEWIRE_DEVICE void clear() const {
    for (int32_t at = 0; at < chunks_ / 8; at += 16) ptx::store_shared_four(room_ + at, {0, 0, 0, 0});
  }
  TILEWIRE_DEVICE bool has(int32_t chunk) const {
    return chunk < chunks_ && (ptx::load_shared(word_of(chunk)) >> (chunk % 32) & 1) != 0;
  }
  TILEWIRE_DEVICE void add(int32_t chunk) const {
    if (chunk >= chunks_) return;
    ptx::store_shared(word_of(chunk), ptx::load_shared(word_of(chunk)) | uint32_t{1} << (chunk % 32));
  }

 private:
  TILEWIRE_DEVICE uint32_t word_of(int32_t chunk) const { return room_ + chunk / 32 * 4; }

  uint32_t room_;
  int32_t chunks_;
};

// The computing warps are at most two steps behind. So that they do not wait,
// each step does one thing that takes a look at memory: what comes next is
// asked for in the first step of a work, and looked at in the second one.
template <class Form>
class ItemLoader {
 public:
  TILEWIRE_DEVICE ItemLoader(const FusedParameters& p, const CallSpace& space, const SharedAttention<Form>& shared)
      : p_(p),
        space_(space),
        gate_(space, kComputeRole, 0),
        feed_(shared),
        seen_(shared.feeder_room(), AttentionPlan<Form>::kFeederBytes),
        role_(p.schedule, static_cast<int32_t>(blockIdx.x),
              ItemsWhenFree(p.counter, static_cast<int32_t>(blockIdx.x))) {}

  // By one thread.
  TILEWIRE_DEVICE void run() {
    seen_.clear();
    has_next_ = role_.next(next_);
    while (has_next_) {
      const ItemWork w = next_;
      is_next_known_ = false;
      if (w.is_end) {
        end_units(w);
      } else {
        if (w.needs > 2 * w.blocks.count) gate_.pass_for_copies(role_, w);  // the whole gather
        if (w.is_first) begin_item(w);
        add_steps(w);
        if (w.is_last) feed_.end_item(broken());
      }
      know_next();
    }
    feed_.finish();
  }

 private:
  TILEWIRE_DEVICE int32_t broken() { return gate_.waiter().has_given_up() ? kBrokenStep : 0; }

  TILEWIRE_DEVICE void know_next() {
    if (is_next_known_) return;
    is_next_known_ = true;
    has_next_ = role_.next(next_);
  }
  TILEWIRE_DEVICE void begin_item(const ItemWork& w) {
    feed_.begin_item(&p_.q, {.row = static_cast<int32_t>(p_.schedule.tile_range(w.tile).begin),
                             .head = w.pair % p_.kv_heads * p_.schedule.heads + w.head,
                             .batch = w.pair / p_.kv_heads,
                             .number = static_cast<int32_t>(w.item)});
  }
  TILEWIRE_DEVICE void add_steps(const ItemWork& w) {
    const Schedule& s = p_.schedule;
    const bool is_own = w.source == s.me();
    const auto first_row = static_cast<int32_t>(s.blocks.row_begin[w.source.value]);
    StepSource from{&p_.k, &p_.v, 0, 0, w.pair % p_.kv_heads, w.pair / p_.kv_heads};
    int32_t block_end = 0, key_line = 0, value_line = 0,
            steps = 0;  // lines: of step 0
    StepWalk walk(s, p_.steps, w.tile, w.source);
    for (StepWalk::Step step; walk.next(step); ++steps) {
      if (!is_own && step.number >= block_end) {
        const int32_t block = step.number / p_.steps.block_steps;
        block_end = (block + 1) * p_.steps.block_steps;
        const ChunkRef chunk{w.source, Chunk{w.pair * s.blocks_of(w.source) + block}};
        pass(chunk);
        place(chunk, from, key_line, value_line);
      }
      const int32_t row = step.number * Form::kStep;
      from.key_row = key_line + row;
      from.value_row = value_line + row;
      feed_.add(from, {.first = step.keys.least,
                       .keys = step.keys.keys,
                       .row = first_row + row,
                       .flags = (step.is_masked ? kMaskedStep : 0) | (step.keys.is_run != 0 ? 0 : kScatteredStep)});
      if (steps == 0 && w.is_last) role_.deal().ask();
      if (steps == 1) know_next();
    }
  }
  // Own keys are read where the caller has them; others when they have come. Each is looked for once, though many items
  // read it: its word says so until the end of the call, and its slot is not written before end_units() has given it back.
  TILEWIRE_DEVICE void pass(ChunkRef c) {
    const Schedule& s = p_.schedule;
    const int32_t number = s.pairs * s.blocks.chunk_begin[c.source.value] + c.chunk.value;
    if (seen_.has(number)) return;
    feed_.pass_on(0);
    const Need begun = s.begun(c.source), arrived = s.arrived(c);
    if (!gate_.pass_at_once_for_copies(begun, arrived)) {
      if (!gate_.waiter().has_given_up()) feed_.load_values();
      gate_.pass_word_for_copies(begun);
      gate_.pass_word_for_copies(arrived);
    }
    if (!gate_.waiter().has_given_up()) seen_.add(number);
  }
  // Where a chunk of another rank lies: its keys, and its values behind them.
  // As lines of a step 0 in front of it.
  TILEWIRE_DEVICE void place(ChunkRef c, StepSource& from, int32_t& key_line, int32_t& value_line) const {
    const Schedule& s = p_.schedule;
    const RowRange rows = s.rows_of(c);
    const auto line = static_cast<int32_t>((s.offset(s.me(), c) - first_line_offset(s)) / p_.line_bytes);
    key_line = line - static_cast<int32_t>(rows.begin);
    value_line = key_line + static_cast<int32_t>(rows.rows());
    const CUtensorMap* map = &p_.received[ArenaLayout::half_of(space_.epoch())];
    from = {map, map, 0, 0, 0, 0};
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
  SeenChunks seen_;
  ItemRole<ItemsWhenFree> role_;
  ItemWork next_;
  bool has_next_ = false, is_next_known_ = false;
};

}  // namespace tilewire::attention

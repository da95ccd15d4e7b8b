// The compute role's loader and its mask: segments of items to the steps that the computing warps take.
#pragma once

#include "device/attention/attention_feed.cuh"
#include "device/attention/online_softmax.cuh"
#include "ops/attention/device_scout.cuh"

namespace tilewire::attention {

// Hides scores of keys that a row does not see, by the tables of schedule and steps. What the rows of a warp see is copied
// into shared memory when the tile begins, long before it is asked for.
class RowMask {
 public:
  TILEWIRE_DEVICE explicit RowMask(const FusedParameters& p) : p_(p) {}

  // By whole warps, which stay together.
  TILEWIRE_DEVICE void begin(uint32_t room, int32_t row) const {
    static_assert(sizeof(KeySpan) == kSpanBytes);
    const auto lane = static_cast<int32_t>(threadIdx.x % 32);
    // Rows behind the last one are not stored.
    const int32_t last = static_cast<int32_t>(p_.schedule.rows) - 1;
    ptx::copy_async_wait();  // for that of a tile before, whose mask nobody asked for
    if (lane < 16) {
      ptx::copy_async_16(room + kSpanBytes * lane, p_.schedule.query_spans + min(row + lane, last));
    }
    __syncwarp();
  }
  // What a lane does not see it looks at all the same.
  template <int kScores>
  TILEWIRE_DEVICE void apply(uint32_t room, float (&s)[kScores], const StepNote& note) const {
    static_assert(kScores <= 64);
    const auto lane = static_cast<int32_t>(threadIdx.x % 32), first_column = 2 * (lane % 4);
    ptx::copy_async_wait();
    __syncwarp();
    const KeySpan spans[2] = {span_of(room, lane / 4), span_of(room, lane / 4 + 8)};
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
    __syncwarp();
  }

 private:
  static constexpr int32_t kSpanBytes = 16;

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
  TILEWIRE_DEVICE static KeySpan span_of(uint32_t room, int32_t row) {
    const uint4 four = ptx::load_shared_quad(room + kSpanBytes * row);
    return {static_cast<int64_t>(uint64_t{four.y} << 32 | four.x),
            static_cast<int64_t>(uint64_t{four.w} << 32 | four.z)};
  }
  TILEWIRE_DEVICE static int32_t column_of(int64_t distance) {
    constexpr int64_t kFar = 1 << 20;
    return static_cast<int32_t>(min(max(distance, -kFar), kFar));
  }

  const FusedParameters& p_;
};

// The loading thread: segments of items to the steps that the computing warps take. It looks at nothing but the table of steps,
// one ahead, since the computing warps are at most two steps behind it: what is there to load says the scout.
template <class Form>
class ItemLoader {
 public:
  TILEWIRE_DEVICE ItemLoader(const FusedParameters& p, const CallSpace& space, const SharedAttention<Form>& shared)
      : p_(p), space_(space), feed_(shared), segments_(SegmentRing(shared.feeder_room())) {}

  // By one thread.
  TILEWIRE_DEVICE void run() {
    for (;;) {
      // Whoever brings what the scout waits for may wait for the values.
      if (!segments_.is_there()) feed_.load_values();
      const Segment at = segments_.take();
      if ((at.flags & Segment::kNone) != 0) break;
      if ((at.flags & Segment::kFrees) != 0) {
        free_units(at);
        continue;
      }
      if ((at.flags & Segment::kFirst) != 0) {
        feed_.begin_item(&p_.q, {.row = at.row, .head = at.head, .batch = at.batch, .number = at.number});
      }
      add_steps(at);
      if ((at.flags & Segment::kLast) != 0) feed_.end_item(broken(at));
    }
    feed_.finish();
  }

 private:
  TILEWIRE_DEVICE static int32_t broken(const Segment& at) {
    return (at.flags & Segment::kBroken) != 0 ? kBrokenStep : 0;
  }
  TILEWIRE_DEVICE void add_steps(const Segment& at) {
    const bool is_own = (at.flags & Segment::kOwn) != 0;
    if (!is_own) ptx::fence_async_global();  // the scout has acquired what the copies read
    const CUtensorMap* received = &p_.received[ArenaLayout::half_of(space_.epoch())];
    StepWalk walk(at.bounds, p_.steps.step_rows, {at.first_step, at.end_step - at.first_step}, at.steps);
    for (StepWalk::Step step; walk.next(step);) {
      const int32_t row = step.number * Form::kStep;
      const bool is_last = step.is_last && (at.flags & Segment::kLast) != 0;
      feed_.add({is_own ? &p_.k : received, is_own ? &p_.v : received, at.key_line + row, at.value_line + row,
                 at.kv_head, is_own ? at.batch : 0},
                {.first = step.keys.least,
                 .keys = step.keys.keys,
                 .row = at.first_row + row,
                 .flags = (step.is_masked ? kMaskedStep : 0) | (step.keys.is_run != 0 ? 0 : kScatteredStep) |
                          (is_last ? kLastStep | broken(at) : 0)});
    }
  }
  // Slots may be written again when all has been read from them.
  TILEWIRE_DEVICE void free_units(const Segment& at) {
    feed_.wait_loaded();
    if ((at.flags & Segment::kBroken) != 0) return;
    const Schedule& s = p_.schedule;
    for (int32_t i = 0; i < at.units; ++i) {
      space_.publish(ItemRole<ItemsWhenFree>::unit_read(s, static_cast<int32_t>(blockIdx.x), at.first_unit + i));
    }
  }

  const FusedParameters& p_;
  const CallSpace& space_;
  AttentionFeed<Form> feed_;
  SegmentTaker segments_;
};

}  // namespace tilewire::attention

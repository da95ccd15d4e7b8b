// What a CTA loads next, by one thread beside the one that loads: items of the schedule to segments, that is steps of keys which
// lie behind each other and are here. All looks at memory that lead there are this thread's, a segment or two ahead of the
// loading thread, which the computing warps wait for.
#pragma once

#include "device/attention/attention_form.h"
#include "device/comm/call_gate.cuh"
#include "device/sync/pipeline.cuh"
#include "device/tile/deal.cuh"
#include "ops/attention/device_parameters.cuh"

namespace tilewire::attention {

// Items that CTAs take when they are free for one (docs/decisions/0035), as a deal of ItemRole.
class ItemsWhenFree {
 public:
  TILEWIRE_DEVICE ItemsWhenFree(const UnitCounter& counter, int32_t worker) : counter_(counter), worker_(worker) {}

  TILEWIRE_DEVICE int64_t first() const { return worker_; }
  // Each item is asked behind once, so the counter is at 0 at the end of a launch.
  TILEWIRE_DEVICE int64_t next() {
    return int64_t{counter_.clusters} + ptx::count_around(counter_.taken, counter_.units - 1);
  }

 private:
  const UnitCounter& counter_;
  int32_t worker_;
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

// Steps of one source for an item, of the own keys or of one chunk. Or that there are none, or that units are read.
struct Segment {
  static constexpr int32_t kFirst = 1, kLast = 2;  // of its item
  static constexpr int32_t kOwn = 4;               // keys where the caller has them
  static constexpr int32_t kBroken = 8;            // a wait has expired
  static constexpr int32_t kFrees = 16;  // no steps: `units` from `first_unit` on may be freed behind what was before
  static constexpr int32_t kNone = 32;   // no more

  int32_t row = 0, head = 0, batch = 0, flags = 0;  // of the tile of queries
  int32_t kv_head = 0, first_step = 0, end_step = 0, first_row = 0;
  int32_t key_line = 0, value_line = 0, number = 0;
  int32_t first_unit = 0, units = 0;
  const KeyStep* steps = nullptr;  // of the source
  TileBounds bounds;
};

// Where segments are handed over: shared memory behind what the scout remembers.
struct SegmentRing {
  static constexpr int32_t kSegments = 4, kQuads = 5, kBytes = 16 * kQuads;
  static constexpr int32_t kSeenBytes = 1536, kOffset = kSeenBytes + 16 * kSegments;
  static constexpr int32_t kRoom = kOffset + kSegments * kBytes;

  uint32_t room;

  TILEWIRE_DEVICE explicit SegmentRing(uint32_t at) : room(at) {}
  TILEWIRE_DEVICE PipelineBarriers<kSegments> barriers() const { return {room + kSeenBytes}; }
  TILEWIRE_DEVICE uint32_t quad(uint32_t stage, int32_t i) const { return room + kOffset + stage * kBytes + 16 * i; }
  TILEWIRE_DEVICE void init() const { barriers().init(1); }

  TILEWIRE_DEVICE void store(uint32_t stage, const Segment& s) const {
    const auto steps = reinterpret_cast<uint64_t>(s.steps);
    ptx::store_shared_four(quad(stage, 0), {s.row, s.head, s.batch, s.flags});
    ptx::store_shared_four(quad(stage, 1), {s.kv_head, s.first_step, s.end_step, s.first_row});
    ptx::store_shared_four(quad(stage, 2), {s.key_line, s.value_line, s.number, s.units});
    ptx::store_shared_four(quad(stage, 3),
                           {static_cast<int32_t>(steps), static_cast<int32_t>(steps >> 32), s.first_unit, 0});
    ptx::store_shared_four(quad(stage, 4),
                           {s.bounds.any_begin, s.bounds.any_end, s.bounds.all_begin, s.bounds.all_end});
  }
  TILEWIRE_DEVICE Segment load(uint32_t stage) const {
    const int4 a = ptx::load_shared_four(quad(stage, 0)), b = ptx::load_shared_four(quad(stage, 1)),
               c = ptx::load_shared_four(quad(stage, 2)), e = ptx::load_shared_four(quad(stage, 4));
    const uint4 d = ptx::load_shared_quad(quad(stage, 3));
    return {.row = a.x,
            .head = a.y,
            .batch = a.z,
            .flags = a.w,
            .kv_head = b.x,
            .first_step = b.y,
            .end_step = b.z,
            .first_row = b.w,
            .key_line = c.x,
            .value_line = c.y,
            .number = c.z,
            .first_unit = static_cast<int32_t>(d.z),
            .units = c.w,
            .steps = reinterpret_cast<const KeyStep*>(uint64_t{d.y} << 32 | d.x),
            .bounds = {e.x, e.y, e.z, e.w}};
  }
};

// By one thread that waits for no other one.
class SegmentTaker {
 public:
  TILEWIRE_DEVICE explicit SegmentTaker(SegmentRing ring) : ring_(ring) {}

  TILEWIRE_DEVICE bool is_there() const { return ptx::mbarrier_try_wait(ring_.barriers().full(at_.stage), at_.parity); }
  TILEWIRE_DEVICE Segment take() {
    while (!is_there()) {
    }
    const Segment segment = ring_.load(at_.stage);
    ptx::mbarrier_arrive(ring_.barriers().empty(at_.stage));
    at_.next();
    return segment;
  }

 private:
  SegmentRing ring_;
  PipelineCursor<SegmentRing::kSegments> at_;
};

template <class Form>
class ItemScout {
 public:
  static_assert(SegmentRing::kRoom <= AttentionPlan<Form>::kFeederBytes);

  TILEWIRE_DEVICE ItemScout(const FusedParameters& p, const CallSpace& space, uint32_t room)
      : p_(p),
        gate_(space, kComputeRole, kTilePauseNs),
        seen_(room, SegmentRing::kSeenBytes),
        ring_(room),
        given_(ring_.barriers()),
        role_(p.schedule, static_cast<int32_t>(blockIdx.x),
              ItemsWhenFree(p.counter, static_cast<int32_t>(blockIdx.x))) {}

  // By one thread.
  TILEWIRE_DEVICE void run() {
    seen_.clear();
    for (ItemWork w; role_.next(w);) {
      if (w.is_end) {
        give({.flags = Segment::kFrees, .first_unit = w.first_unit, .units = w.publishes});
        continue;
      }
      if (w.needs > 2 * w.blocks.count) gate_.pass_alone(role_, w);  // the whole gather
      walk_source(w);
      // The next one is not taken before the loader has this one, or CTAs would hold items that others are free for. Of short
      // ones some are, for they last no longer than it takes to find one.
      if (w.is_last && steps_ > kShortSteps) given_.wait_taken();
    }
    give({.flags = Segment::kNone});
  }

 private:
  static constexpr int32_t kShortSteps = 8;

  TILEWIRE_DEVICE void walk_source(const ItemWork& w) {
    const Schedule& s = p_.schedule;
    const bool is_own = w.source == s.me();
    const StepRange range = p_.steps.of_tiles[int64_t{w.tile} * s.ranks() + w.source.value];
    Segment at{.row = static_cast<int32_t>(s.tile_range(w.tile).begin),
               .head = w.pair % p_.kv_heads * s.heads + w.head,
               .batch = w.pair / p_.kv_heads,
               .flags = (w.is_first ? Segment::kFirst : 0) | (is_own ? Segment::kOwn : 0),
               .kv_head = is_own ? w.pair % p_.kv_heads : 0,
               .first_step = range.first,
               .end_step = range.first,
               .first_row = static_cast<int32_t>(s.blocks.row_begin[w.source.value]),
               .number = static_cast<int32_t>(w.item),
               .steps = p_.steps.steps + p_.steps.step_begin[w.source.value],
               .bounds = TileBounds(s.tile_spans[w.tile])};
    const int32_t end = range.first + range.count;
    steps_ = (w.is_first ? 0 : steps_) + range.count;
    if (is_own) {
      at.end_step = end;
    } else {
      walk_chunks(w, end, at);
    }
    if (w.is_last) at.flags |= Segment::kLast;
    if (at.end_step > at.first_step || (at.flags & (Segment::kFirst | Segment::kLast)) != 0) give(at);
  }
  // Leaves the last of the segments.
  TILEWIRE_DEVICE void walk_chunks(const ItemWork& w, int32_t end, Segment& at) {
    const Schedule& s = p_.schedule;
    const int32_t length = p_.steps.block_steps, first = at.first_step;
#pragma unroll 1
    for (int32_t block = w.blocks.first; block < w.blocks.first + w.blocks.count; ++block) {
      const int32_t begins = max(first, block * length), ends = min(end, (block + 1) * length);
      if (begins >= ends || !s.is_looked_at(w.tile, {w.source, Chunk{block}})) continue;
      if (at.end_step > at.first_step) {
        give(at);
        at.flags &= ~Segment::kFirst;
      }
      const ChunkRef chunk{w.source, Chunk{w.pair * s.blocks_of(w.source) + block}};
      pass(chunk);
      place(chunk, at);
      at.first_step = begins;
      at.end_step = ends;
    }
  }
  TILEWIRE_DEVICE void give(Segment s) {
    const uint32_t stage = given_.wait_free();
    if (gate_.waiter().has_given_up()) s.flags |= Segment::kBroken;
    ring_.store(stage, s);
    ptx::mbarrier_arrive(ring_.barriers().full(stage));
    given_.commit();
  }
  // Own keys are read where the caller has them; others when they have come. Each is looked for once, though many items
  // read it: its word says so until the end of the call, and its slot is not written before the loader has given it back.
  TILEWIRE_DEVICE void pass(ChunkRef c) {
    const Schedule& s = p_.schedule;
    const int32_t number = s.pairs * s.blocks.chunk_begin[c.source.value] + c.chunk.value;
    if (seen_.has(number)) return;
    const Need begun = s.begun(c.source), arrived = s.arrived(c);
    if (!gate_.pass_at_once_for_copies(begun, arrived)) {
      gate_.pass_word_for_copies(begun);
      gate_.pass_word_for_copies(arrived);
    }
    if (!gate_.waiter().has_given_up()) seen_.add(number);
  }
  // Where a chunk of another rank lies: its keys, and its values behind them. As lines of a step 0 in front of it.
  TILEWIRE_DEVICE void place(ChunkRef c, Segment& at) const {
    const Schedule& s = p_.schedule;
    const RowRange rows = s.rows_of(c);
    const auto line = static_cast<int32_t>((s.offset(s.me(), c) - first_line_offset(s)) / p_.line_bytes);
    at.key_line = line - static_cast<int32_t>(rows.begin);
    at.value_line = at.key_line + static_cast<int32_t>(rows.rows());
  }

  const FusedParameters& p_;
  CallGate gate_;
  SeenChunks seen_;
  SegmentRing ring_;
  PipelineProducer<SegmentRing::kSegments> given_;
  ItemRole<ItemsWhenFree> role_;
  int32_t steps_ = 0;  // of the item
};

}  // namespace tilewire::attention

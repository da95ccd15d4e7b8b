// The warps that add up slots: chunks are dealt out to teams of warps, each of which takes its part of a chunk's numbers.
// The last one of a team to be done publishes.
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/reduction/numbers.cuh"
#include "device/reduction/partial_tiles.cuh"

namespace tilewire {

constexpr uint32_t kSumPauseNs = 120;

// visit(places) of the team's chunk of rows x cols: kAtOnce places of kCount numbers at a time, this lane's. Where there
// are fewer left, one of them comes again.
template <int kCount, int kAtOnce, class Visit>
TILEWIRE_DEVICE void for_each_place(int32_t rows, int32_t cols, const SumTeam& team, const Visit& visit) {
  for (PlaceWalk walk(rows, cols, kCount, team, static_cast<int32_t>(threadIdx.x % 32)); walk.has_next();) {
    NumberPlace places[kAtOnce];
    places[0] = walk.next();
#pragma unroll
    for (int32_t i = 1; i < kAtOnce; ++i) places[i] = walk.has_next() ? walk.next() : places[0];
    visit(places);
  }
}

// Slots of a chunk at the own rank, behind each other.
struct SlotStack {
  const std::byte* first;
  int64_t step_bytes;  // from one to the next
  int32_t pitch_bytes;
  DataType type;

  TILEWIRE_DEVICE const std::byte* at(const NumberPlace& p) const {
    return first + (p.row * pitch_bytes + p.col * bytes_of(type));  // a chunk is below 2^28 bytes: CommandLimits
  }
};

// Where slots lie, for those that add up. Schedule derives from ReductionSchedule.
template <class Schedule>
class SumSlots {
 public:
  TILEWIRE_DEVICE SumSlots(const Schedule& s, const CallSpace& space, const ReductionView& view)
      : s_(s), half_(space.half(s.me())), view_(view) {}

  TILEWIRE_DEVICE const Schedule& schedule() const { return s_; }
  TILEWIRE_DEVICE const ReductionView& view() const { return view_; }
  // The own node's partial sums, by rank.
  TILEWIRE_DEVICE SlotStack partials(OwnedChunk c) const {
    const int64_t first = s_.partial_offset(s_.source(0), c);
    const int64_t step = s_.width() > 1 ? s_.partial_offset(s_.source(1), c) - first : 0;
    return {half_ + first, step, pitch_bytes(c, s_.buffers.partial_bytes), view_.partial};
  }
  // The other nodes' sums of an own chunk, by node. There is one at least.
  TILEWIRE_DEVICE SlotStack received(OwnedChunk c) const {
    const int64_t first = s_.received_offset(s_.other_node(0), c);
    const int64_t step = s_.other_nodes() > 1 ? s_.received_offset(s_.other_node(1), c) - first : 0;
    return {half_ + first, step, pitch_bytes(c, s_.buffers.sum_bytes), view_.node_sum};
  }
  TILEWIRE_DEVICE std::byte* sent(OwnedChunk c) const { return half_ + s_.sent_offset(c); }
  TILEWIRE_DEVICE int32_t pitch_bytes(OwnedChunk c, int32_t element_bytes) const {
    return static_cast<int32_t>(ReductionBuffers::pitch_bytes(s_.map.columns(c), element_bytes));
  }

 private:
  const Schedule& s_;
  std::byte* half_;
  const ReductionView& view_;
};

// sums[i] = what lies at place i of each slot, added up in their order. Two slots are read before any is added.
template <int kCount, int kAtOnce>
TILEWIRE_DEVICE void add_up(const SlotStack& stack, int32_t slots, const NumberPlace (&places)[kAtOnce],
                            Numbers<kCount> (&sums)[kAtOnce]) {
  const std::byte* at[kAtOnce];
#pragma unroll
  for (int32_t i = 0; i < kAtOnce; ++i) at[i] = stack.at(places[i]);
#pragma unroll 1
  for (int32_t slot = 0; slot < slots; slot += 2) {
    const bool has_second = slot + 1 < slots;
    uint4 first[kAtOnce], second[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      first[i] = load_raw<kCount>(at[i], stack.type);
      if (has_second) second[i] = load_raw<kCount>(at[i] + stack.step_bytes, stack.type);
      at[i] += 2 * stack.step_bytes;
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      add_numbers(sums[i], widened<kCount>(first[i], stack.type), slot == 0);
      if (has_second) add_numbers(sums[i], widened<kCount>(second[i], stack.type), false);
    }
  }
}

// Nothing that lay behind the last number of a row before travels.
template <int kCount>
TILEWIRE_DEVICE void clear_behind(const NumberPlace& p, Numbers<kCount>& n) {
#pragma unroll
  for (int32_t i = 1; i < kCount; ++i) {
    if (i >= p.count) n.v[i] = 0;
  }
}

// The sum of the own node of a chunk for an owner elsewhere, into the slot from which it is sent.
template <int kCount, class Schedule>
TILEWIRE_DEVICE void add_node_sum(const SumSlots<Schedule>& slots, OwnedChunk c, const SumTeam& team) {
  constexpr int32_t kAtOnce = 2;
  const Schedule& s = slots.schedule();
  const SlotStack partials = slots.partials(c);
  const SlotStack to{slots.sent(c), 0, slots.pitch_bytes(c, s.buffers.sum_bytes), slots.view().node_sum};
  for_each_place<kCount, kAtOnce>(static_cast<int32_t>(s.map.rows(c).rows()),
                                  static_cast<int32_t>(s.map.columns(c).cols()), team,
                                  [&](const NumberPlace(&places)[kAtOnce]) {
                                    Numbers<kCount> sums[kAtOnce];
                                    add_up(partials, s.width(), places, sums);
#pragma unroll
                                    for (int32_t i = 0; i < kAtOnce; ++i) {
                                      clear_behind(places[i], sums[i]);
                                      store_numbers(const_cast<std::byte*>(to.at(places[i])), sums[i], to.type);
                                    }
                                  });
}

// What is added to the sum of an own chunk, and where it goes.
template <int kCount>
class ResultRow {
 public:
  // `row`: of the result.
  TILEWIRE_DEVICE ResultRow(const ResultView& r, int32_t row, int32_t col, int32_t count)
      : r_(r), row_(row), col_(col), count_(count) {}

  TILEWIRE_DEVICE void add(Numbers<kCount>& sum) const {
    if (r_.bias != nullptr) {
#pragma unroll
      for (int32_t i = 0; i < kCount; ++i) {
        if (i < count_) sum.v[i] += load_number(r_.bias + int64_t{col_ + i} * bytes_of(r_.bias_type), r_.bias_type);
      }
    }
    if (r_.residual != nullptr) {
      const std::byte* at = r_.residual + row_ * r_.residual_row_bytes;
#pragma unroll
      for (int32_t i = 0; i < kCount; ++i) {
        if (i < count_) sum.v[i] += load_number(at + (col_ + i) * r_.residual_col_bytes, r_.residual_type);
      }
    }
  }
  TILEWIRE_DEVICE void store(const Numbers<kCount>& sum) const {
    std::byte* to = r_.out + row_ * r_.out_pitch_bytes + int64_t{col_} * bytes_of(r_.out_type);
    if (r_.is_aligned && count_ == kCount) {
      store_numbers(to, sum, r_.out_type);
      return;
    }
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) {
      if (i < count_) store_number(to + i * bytes_of(r_.out_type), sum.v[i], r_.out_type);
    }
  }
  TILEWIRE_DEVICE void store_nan() const {
    Numbers<kCount> nan;
#pragma unroll
    for (int32_t i = 0; i < kCount; ++i) nan.v[i] = __uint_as_float(0xffffffff);
    store(nan);
  }

 private:
  const ResultView& r_;
  int32_t row_, col_, count_;
};

template <int kCount, int kAtOnce>
TILEWIRE_DEVICE void load_places(const SlotStack& stack, int32_t slot, const NumberPlace (&places)[kAtOnce],
                                 uint4 (&raw)[kAtOnce]) {
#pragma unroll
  for (int32_t i = 0; i < kAtOnce; ++i) {
    raw[i] = load_raw<kCount>(stack.at(places[i]) + slot * stack.step_bytes, stack.type);
  }
}

// `sums` are those of the own node, and become those of all nodes, added up in their order. `next`: what the first one of
// the others has.
template <int kCount, int kAtOnce>
TILEWIRE_DEVICE void add_nodes(const ReductionSchedule& s, const SlotStack& received,
                               const NumberPlace (&places)[kAtOnce], uint4 (&next)[kAtOnce],
                               Numbers<kCount> (&sums)[kAtOnce]) {
  const int32_t here = s.here().value, others = s.other_nodes();
  uint4 own[kAtOnce];
#pragma unroll
  for (int32_t i = 0; i < kAtOnce; ++i) own[i] = packed(sums[i], received.type);
#pragma unroll 1
  for (int32_t node = 0, taken = 0; node <= others; ++node) {
    uint4 raw[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) raw[i] = node == here ? own[i] : next[i];
    if (node != here && ++taken < others) load_places<kCount>(received, taken, places, next);
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) add_numbers(sums[i], widened<kCount>(raw[i], received.type), node == 0);
  }
}

// The sums of all nodes of a chunk that is finished here, by node, each rounded as it would be on its way; then what is
// added, and the result, whose row `first_row` is the chunk's first. also(place, sum): what else the result goes to. With
// is_here = false the result is NaN. kAtOnce places are read at once: as many as registers hold.
template <int kCount, int kAtOnce, class Schedule, class Also>
TILEWIRE_DEVICE void add_owned_sum(const SumSlots<Schedule>& slots, const ResultView& result, OwnedChunk c,
                                   int32_t first_row, const SumTeam& team, bool is_here, const Also& also) {
  const Schedule& s = slots.schedule();
  const int32_t others = s.other_nodes();
  const SlotStack partials = slots.partials(c);
  const SlotStack received = others > 0 ? slots.received(c) : partials;
  const RowRange rows = s.map.rows(c);
  const ColumnRange columns = s.map.columns(c);
  const auto first_col = static_cast<int32_t>(columns.begin);
  for_each_place<kCount, kAtOnce>(
      static_cast<int32_t>(rows.rows()), static_cast<int32_t>(columns.cols()), team,
      [&](const NumberPlace(&places)[kAtOnce]) {
        Numbers<kCount> sums[kAtOnce];
        if (is_here) {
          uint4 next[kAtOnce] = {};  // of the other nodes' sums: read one ahead, the first before all else
          if (others > 0) load_places<kCount>(received, 0, places, next);
          add_up(partials, s.width(), places, sums);
          if (others > 0) add_nodes(s, received, places, next, sums);
        }
#pragma unroll
        for (int32_t i = 0; i < kAtOnce; ++i) {
          const NumberPlace& p = places[i];
          const ResultRow<kCount> to(result, first_row + p.row, first_col + p.col, p.count);
          if (is_here) {
            to.add(sums[i]);
            to.store(sums[i]);
            also(p, sums[i]);
          } else {
            to.store_nan();
          }
        }
      });
}

// Runs a role by a whole warp of a team: move(work, is_here) does this warp's part of a work. The last one of the team
// to be done publishes; counter_of(work, its number): where the parts that are done
// are counted. `note_of(work)`: for the trace.
template <class Role, class CounterOf, class NoteOf, class Move>
TILEWIRE_DEVICE void run_moves(const CallSpace& space, Role role, int32_t number, const SumTeam& team, TracePlace place,
                               const CounterOf& counter_of, const NoteOf& note_of, const Move& move) {
  const bool is_leader = threadIdx.x % 32 == 0;
  CallGate gate(space, number, kSumPauseNs);
  const TraceLane trace = space.trace(place);
  const bool is_noted = is_leader && team.part == 0 && trace.is_on();
  int32_t works = 0;
  for (typename Role::Work w; role.next(w); ++works) {
    if (is_noted) trace.wait(note_of(w));
    const bool is_here = gate.pass(role, w);
    if (is_noted) trace.begin();
    move(w, is_here);
    __syncwarp();
    if (is_noted) trace.end();
    if (!is_leader || !is_here || w.publishes == 0 || !is_last_part(counter_of(w, works), team.parts)) continue;
    for (int32_t i = 0; i < w.publishes; ++i) space.publish(role.publish(w, i));
  }
}

// The same of a role that adds up chunks: add(chunk, is_here).
template <class Schedule, class Role, class Add>
TILEWIRE_DEVICE void run_sums(const SumSlots<Schedule>& slots, const CallSpace& space, const Role& role, int32_t number,
                              const SumTeam& team, TracePlace place, const Add& add) {
  const Schedule& s = slots.schedule();
  using Work = typename Role::Work;
  run_moves(
      space, role, number, team, place,
      [&](const Work& w, int32_t) { return slots.view().summed + s.sum_number(w.chunk); },
      [&](const Work& w) {
        return TraceNote{.work = s.map.global(w.chunk),
                         .source = s.me().value,
                         .bytes = static_cast<uint32_t>(s.sum_bytes(w.chunk)),
                         .role = static_cast<uint8_t>(number),
                         .link = TraceLink::copy};
      },
      [&](const Work& w, bool is_here) { add(w.chunk, is_here); });
}

}  // namespace tilewire

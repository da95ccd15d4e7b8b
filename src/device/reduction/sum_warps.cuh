// The warps that add up slots: chunks are dealt out to teams of warps, each of which takes its part of a chunk's numbers.
// The last one of a team to be done publishes.
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/reduction/numbers.cuh"
#include "device/reduction/partial_tiles.cuh"

namespace tilewire {

constexpr uint32_t kSumPauseNs = 120;

// So many are read before any is added, as many as registers hold: places where there are one or two slots, of which those
// that are finished have one more, or half as many where there are up to four (has_few_slots()); else slots of one place.
constexpr int32_t kPlacesAtOnce = 6, kFinishedAtOnce = 4, kSlotsAtOnce = 4;

// visit(places) of the team's chunk of rows x cols: kAtOnce places of kCount numbers at a time, this lane's. Where there
// are fewer left, one of them comes again. `in_pairs`: each place comes twice, one behind the other.
template <int kCount, int kAtOnce, class Visit>
TILEWIRE_DEVICE void for_each_place(int32_t rows, int32_t cols, const SumTeam& team, const Visit& visit,
                                    bool in_pairs = false) {
  for (PlaceWalk walk(rows, cols, kCount, team, static_cast<int32_t>(threadIdx.x % 32)); walk.has_next();) {
    NumberPlace places[kAtOnce];
    places[0] = walk.next();
#pragma unroll
    for (int32_t i = 1; i < kAtOnce; ++i) {
      if (in_pairs && i % 2 == 1) {
        places[i] = places[i - 1];
      } else {
        places[i] = walk.has_next() ? walk.next() : places[0];
      }
    }
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

// Where slots lie, for those that add up.
class SumSlots {
 public:
  TILEWIRE_DEVICE SumSlots(std::byte* half, const ReductionView& view) : half_(half), view_(view) {}

  TILEWIRE_DEVICE const ReductionView& view() const { return view_; }
  // The own node's partial sums, by rank.
  TILEWIRE_DEVICE SlotStack partials(const SumWork& w) const {
    return {at(w.partials), bytes(w.partial_step), pitch_bytes(w.cols, view_.partial), view_.partial};
  }
  // The other nodes' sums of an own chunk, by node. There is one at least.
  TILEWIRE_DEVICE SlotStack received(const SumWork& w) const {
    return {at(w.received), bytes(w.received_step), pitch_bytes(w.cols, view_.node_sum), view_.node_sum};
  }
  // Where the sum of a chunk is sent from.
  TILEWIRE_DEVICE SlotStack sent(const SumWork& w) const {
    return {at(w.to), 0, pitch_bytes(w.cols, view_.node_sum), view_.node_sum};
  }
  TILEWIRE_DEVICE std::byte* at(uint32_t unit) const { return half_ + bytes(unit); }

  TILEWIRE_DEVICE static int64_t bytes(uint32_t units) { return int64_t{units} * kWireUnitBytes; }
  TILEWIRE_DEVICE static int32_t pitch_bytes(int32_t cols, DataType type) {
    return (cols * bytes_of(type) + kWireUnitBytes - 1) / kWireUnitBytes * kWireUnitBytes;
  }

 private:
  std::byte* half_;
  const ReductionView& view_;
};

// What lies at the place of each slot, added up in their order. kAtOnce slots are read before any is added.
template <int kCount, int kAtOnce>
TILEWIRE_DEVICE Numbers<kCount> add_up(const SlotStack& stack, int32_t slots, const NumberPlace& place) {
  Numbers<kCount> sum;
  const std::byte* at = stack.at(place);
#pragma unroll 1
  for (int32_t slot = 0; slot < slots; slot += kAtOnce) {
    uint4 raw[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (slot + i < slots) raw[i] = load_raw<kCount>(at, stack.type);
      at += stack.step_bytes;
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (slot + i < slots) add_numbers(sum, widened<kCount>(raw[i], stack.type), slot + i == 0);
    }
  }
  return sum;
}

// Nothing that lay behind the last number of a row before travels.
template <int kCount>
TILEWIRE_DEVICE void clear_behind(const NumberPlace& p, Numbers<kCount>& n) {
#pragma unroll
  for (int32_t i = 1; i < kCount; ++i) {
    if (i >= p.count) n.v[i] = 0;
  }
}

// Whether there are so few slots that those of several places are read at once; where they are more than two, places come in
// pairs of which the second one is for the slots behind the first two.
TILEWIRE_DEVICE bool has_few_slots(const ReductionView& view) { return view.width <= 4 && view.others <= 1; }
TILEWIRE_DEVICE bool come_in_pairs(int32_t slots) { return slots > 2; }

// What a few slots have at several places, all of it read before any is added: what a warp has under way is what its rate is
// made of, and sums of one place after the other leave registers for that.
template <int kCount, int kAtOnce>
class FewSlots {
  static_assert(kAtOnce % 2 == 0);

 public:
  TILEWIRE_DEVICE FewSlots(const SlotStack& stack, int32_t slots, const NumberPlace (&places)[kAtOnce])
      : slots_(slots) {
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      const int32_t first = i % 2 == 1 && come_in_pairs(slots_) ? 2 : 0;
      const std::byte* at = stack.at(places[i]) + first * stack.step_bytes;
      first_[i] = load_raw<kCount>(at, stack.type);
      if (first + 1 < slots_) second_[i] = load_raw<kCount>(at + stack.step_bytes, stack.type);
    }
  }
  // Of a pair the first one has it all.
  TILEWIRE_DEVICE bool has(int32_t i) const { return i % 2 == 0 || !come_in_pairs(slots_); }
  TILEWIRE_DEVICE Numbers<kCount> sum(int32_t i, DataType type) const {
    Numbers<kCount> sum = widened<kCount>(first_[i], type);
    if (slots_ > 1) add_numbers(sum, widened<kCount>(second_[i], type), false);
    if (i % 2 == 1 || !come_in_pairs(slots_)) return sum;
    add_numbers(sum, widened<kCount>(first_[i + 1], type), false);
    if (slots_ > 3) add_numbers(sum, widened<kCount>(second_[i + 1], type), false);
    return sum;
  }

 private:
  int32_t slots_;
  uint4 first_[kAtOnce], second_[kAtOnce];
};

// The sum of the own node of a chunk for an owner elsewhere, into the slot from which it is sent.
template <int kCount>
TILEWIRE_DEVICE void add_node_sum(const SumSlots& slots, const SumWork& w, const SumTeam& team) {
  const SlotStack partials = slots.partials(w), to = slots.sent(w);
  const auto store = [&](const NumberPlace& place, Numbers<kCount>& sum) {
    clear_behind(place, sum);
    store_numbers(const_cast<std::byte*>(to.at(place)), sum, to.type);
  };
  if (kCount == 8 && has_few_slots(slots.view())) {
    constexpr int32_t kAtOnce = kPlacesAtOnce;
    for_each_place<kCount, kAtOnce>(
        w.rows, w.cols, team,
        [&](const NumberPlace(&places)[kAtOnce]) {
          const FewSlots<kCount, kAtOnce> read(partials, slots.view().width, places);
#pragma unroll
          for (int32_t i = 0; i < kAtOnce; ++i) {
            if (!read.has(i)) continue;
            Numbers<kCount> sum = read.sum(i, partials.type);
            store(places[i], sum);
          }
        },
        come_in_pairs(slots.view().width));
    return;
  }
  for_each_place<kCount, 1>(w.rows, w.cols, team, [&](const NumberPlace(&places)[1]) {
    Numbers<kCount> sum = add_up<kCount, kSlotsAtOnce>(partials, slots.view().width, places[0]);
    store(places[0], sum);
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

// `sum` is that of the own node, and becomes that of all nodes, added up in their order. `next`: what the first one of
// the others has.
template <int kCount>
TILEWIRE_DEVICE void add_nodes(const ReductionView& view, const SlotStack& received, const NumberPlace& place,
                               uint4 next, Numbers<kCount>& sum) {
  const uint4 own = packed(sum, received.type);
  const std::byte* at = received.at(place);
#pragma unroll 1
  for (int32_t node = 0; node <= view.others; ++node) {
    const uint4 raw = node == view.here ? own : next;
    if (node != view.here) {
      at += received.step_bytes;
      if (node + (node < view.here ? 1 : 0) < view.others) next = load_raw<kCount>(at, received.type);
    }
    add_numbers(sum, widened<kCount>(raw, received.type), node == 0);
  }
}

// The sums of all nodes of a chunk that is finished here, by node, each rounded as it would be on its way; then what is
// added, and the result. also(place, sum): where else it goes. With is_here = false the result is NaN.
template <int kCount, class Also>
TILEWIRE_DEVICE void add_owned_sum(const SumSlots& slots, const ResultView& result, const SumWork& w,
                                   const SumTeam& team, bool is_here, const Also& also) {
  const ReductionView& view = slots.view();
  const SlotStack partials = slots.partials(w);
  const SlotStack received = view.others > 0 ? slots.received(w) : partials;
  const auto row_of = [&](const NumberPlace& p) {
    return ResultRow<kCount>(result, w.row + p.row, w.col + p.col, p.count);
  };
  const auto store = [&](const NumberPlace& place, Numbers<kCount>& sum) {
    const ResultRow<kCount> to = row_of(place);
    to.add(sum);
    to.store(sum);
    also(place, sum);
  };
  if (!is_here) {
    for_each_place<kCount, 1>(w.rows, w.cols, team,
                              [&](const NumberPlace(&places)[1]) { row_of(places[0]).store_nan(); });
    return;
  }
  if (kCount == 8 && has_few_slots(view)) {
    constexpr int32_t kAtOnce = kFinishedAtOnce;
    for_each_place<kCount, kAtOnce>(
        w.rows, w.cols, team,
        [&](const NumberPlace(&places)[kAtOnce]) {
          uint4 other[kAtOnce] = {};
          if (view.others > 0) {
#pragma unroll
            for (int32_t i = 0; i < kAtOnce; ++i) other[i] = load_raw<kCount>(received.at(places[i]), received.type);
          }
          const FewSlots<kCount, kAtOnce> own(partials, view.width, places);
#pragma unroll
          for (int32_t i = 0; i < kAtOnce; ++i) {
            if (!own.has(i)) continue;
            Numbers<kCount> sum = own.sum(i, partials.type);
            if (view.others > 0) {  // of two numbers which one comes first makes no difference
              sum = widened<kCount>(packed(sum, received.type), received.type);
              add_numbers(sum, widened<kCount>(other[i], received.type), false);
            }
            store(places[i], sum);
          }
        },
        come_in_pairs(view.width));
    return;
  }
  for_each_place<kCount, 1>(w.rows, w.cols, team, [&](const NumberPlace(&places)[1]) {
    uint4 next = {};  // of the other nodes' sums: read one ahead, the first before all else
    if (view.others > 0) next = load_raw<kCount>(received.at(places[0]), received.type);
    Numbers<kCount> sum = add_up<kCount, kSlotsAtOnce>(partials, view.width, places[0]);
    if (view.others > 0) add_nodes(view, received, places[0], next, sum);
    store(places[0], sum);
  });
}

// Runs a role of a table by a whole warp of a team: move(work, is_here) does this warp's part of a work. The last one of the team
// to be done publishes; counter_of(work): where the parts that are done are counted. `note_of(work)`: for the trace.
template <class Role, class CounterOf, class NoteOf, class Move>
TILEWIRE_DEVICE void run_moves(const CallSpace& space, Role role, int32_t number, const SumTeam& team, TracePlace place,
                               const CounterOf& counter_of, const NoteOf& note_of, const Move& move) {
  const bool is_leader = threadIdx.x % 32 == 0;
  CallGate gate(space, number, kSumPauseNs);
  const TraceLane trace = space.trace(place);
  const bool is_noted = is_leader && team.part == 0 && trace.is_on();
  for (typename Role::Work w; role.next(w);) {
    if (is_noted) trace.wait(note_of(w));
    const bool is_here = gate.pass(role, w);
    if (is_noted) trace.begin();
    move(w, is_here);
    __syncwarp();
    role.again(w);
    if (is_noted) trace.end();
    if (!is_leader || !is_here || w.publishes == 0 || !is_last_part(counter_of(w), team.parts)) continue;
    space.publish_all(role, w);
  }
}

// The same of a role that adds up chunks: add(work, is_here).
template <class Add>
TILEWIRE_DEVICE void run_sums(const SumSlots& slots, const CallSpace& space, const WorkTable<SumWork>& table,
                              int32_t number, const SumTeam& team, TracePlace place, const Add& add) {
  run_moves(
      space, TabledRole<SumWork>(table, team.worker), number, team, place,
      [&](const SumWork& w) { return slots.view().summed + w.counter; },
      [&](const SumWork& w) {
        return TraceNote{.work = w.number,
                         .source = space.frame().me.value,
                         .bytes = static_cast<uint32_t>(w.rows * SumSlots::pitch_bytes(w.cols, slots.view().node_sum)),
                         .role = static_cast<uint8_t>(number),
                         .link = TraceLink::copy};
      },
      add);
}

}  // namespace tilewire

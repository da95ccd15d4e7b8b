// The count role on a GPU: which rows and tokens go where, by all CTAs of a rank, in two steps. Tokens are cut into slices, a
// warp's work each. What decides a place is the order of tokens and slots alone: warps count their slices, the CTA that is
// the last to have counted sums up, and then each row's place is what lies before its slice and in it.
#pragma once

#include "ops/moe_dispatch/device_team.cuh"

namespace tilewire::moe_dispatch {

constexpr int32_t kSliceTokens = 64;

// For slices of all rounds: how many there are at most. Where rows are counted alone there is no order to keep, and one
// round of all tokens.
TILEWIRE_HD constexpr int32_t slices_of_round(const Schedule& s) {
  return s.counts_only ? kCountSlices : static_cast<int32_t>(div_up(s.buffers.block_tokens, kSliceTokens));
}

class RouteCount {
 public:
  // `counts`: shared memory, columns() numbers of each warp of the team.
  TILEWIRE_DEVICE RouteCount(const FusedParameters& p, const CallSpace& space, int32_t* counts)
      : p_(p), s_(p.schedule), space_(space), own_(counts + TableTeam::warp() * columns()) {}

  // By the team of each CTA.
  TILEWIRE_DEVICE void count() const {
    for_each_slice([&](int32_t slice, int32_t, int64_t begin, int64_t end) {
      for (int32_t c = TableTeam::lane(); c < columns(); c += 32) own_[c] = 0;
      __syncwarp();
      for_each_slot(begin, end, [&](int32_t entry, bool is_slot) {
        const int32_t place = is_slot ? read_place(entry) : -1;
        if (is_slot && !s_.counts_only) s_.routing->slots[entry] = {place, 0};
        __syncwarp();
        if (place >= 0) atomicAdd(own_ + place, 1);
        const int32_t node = s_.counts_only ? -1 : first_to(entry, place);
        if (node >= 0) atomicAdd(own_ + s_.experts.experts + node, 1);
      });
      __syncwarp();
      int32_t* to = p_.scratch.slice_counts + int64_t{slice} * columns();
      for (int32_t c = TableTeam::lane(); c < columns(); c += 32) to[c] = own_[c];
    });
  }

  // By the team of the last CTA: the own record, and of each slice what lies before it in its round.
  TILEWIRE_DEVICE void sum_up() const {
    int32_t* record = own_record();
    const int32_t rounds = s_.rounds_of_tokens(s_.tokens), of_round = slices_of_round(s_);
    TableTeam::for_each(rounds * columns(), [&](int32_t i) {
      const int32_t round = i / columns(), column = i % columns();
      int32_t* at = p_.scratch.slice_counts + int64_t{round} * of_round * columns() + column;
      record[kRecordHead + i] = before_slices(at, slices_in(round));
    });
    if (TableTeam::thread() == 0) {
      memcpy(record, &s_.tokens, sizeof(s_.tokens));
      record[2] = record[3] = 0;
    }
  }
  // By one warp of it, behind that: rows and tokens before those of each round and place or node.
  TILEWIRE_DEVICE void find_begins() const {
    const int32_t* counts = own_record() + kRecordHead;
    const int32_t experts = s_.experts.experts, nodes = s_.topology().nodes, rounds = s_.rounds_of_tokens(s_.tokens);
    const auto sum = [&](int32_t of_round, int32_t first, int32_t* begins) {
      const int32_t all = sum_up_by_warp<int32_t>(
          rounds * of_round, 0, [&](int32_t i) { return counts[i / of_round * columns() + first + i % of_round]; },
          [&](int32_t i, int32_t before) { begins[i] = before; });
      if (TableTeam::lane() == 0) begins[rounds * of_round] = all;
    };
    sum(experts, 0, s_.routing->first_row);
    sum(nodes, experts, s_.routing->first_token);
  }
  // By another one: the record for the local peers, and the words.
  TILEWIRE_DEVICE void give_record() const {
    const auto units = s_.record_bytes(s_.rounds_of_tokens(s_.tokens)) / kWireUnitBytes;
    const auto* from = reinterpret_cast<const uint4*>(own_record());
    CountWork w, own;
    int32_t number = 0;
    for (CountRole role(s_); role.next(w); ++number) {
      if (number % 32 == TableTeam::lane()) own = w;
      if (w.to == s_.me()) continue;
      auto* to = reinterpret_cast<uint4*>(space_.half(w.to) + s_.buffers.record_offset(s_.me()));
      for (int64_t i = TableTeam::lane(); i < units; i += 32) to[i] = from[i];
    }
    __syncwarp();
    const CountRole role(s_);
    static_assert(kMostLocalRanks <= 32);
    if (TableTeam::lane() < number) space_.publish(role.publish(own, 0));
  }

  // By the team of each CTA, behind what the last one has summed up.
  TILEWIRE_DEVICE void place() const {
    if (s_.counts_only) return;
    for_each_slice([&](int32_t slice, int32_t round, int64_t begin, int64_t end) {
      const int32_t* before = p_.scratch.slice_counts + int64_t{slice} * columns();
      for (int32_t c = TableTeam::lane(); c < columns(); c += 32) own_[c] = before[c];
      __syncwarp();
      Routing& r = *s_.routing;
      const int32_t experts = s_.experts.experts;
      for_each_slot(begin, end, [&](int32_t entry, bool is_slot) {
        const int32_t place = is_slot ? r.slots[entry].place : -1;
        const int32_t number = number_of(place);
        if (place >= 0) {
          r.slots[entry].number = number;
          r.own_rows[r.first_row[int64_t{round} * experts + place] + number] = entry;
        }
        if (s_.topology().nodes == 1) return;
        const int32_t node = first_to(entry, place);
        const int32_t token_number = number_of(node < 0 ? -1 : experts + node);
        if (node < 0) return;
        r.own_tokens[r.first_token[int64_t{round} * s_.topology().nodes + node] + token_number] = entry / s_.top_k;
      });
      __syncwarp();
    });
  }

 private:
  TILEWIRE_DEVICE int32_t columns() const { return s_.experts.experts + s_.topology().nodes; }
  TILEWIRE_DEVICE int32_t* own_record() const {
    return reinterpret_cast<int32_t*>(space_.half(s_.me()) + s_.buffers.record_offset(s_.me()));
  }
  // Tokens of a round, and of a slice.
  TILEWIRE_DEVICE int64_t block() const { return s_.counts_only ? s_.tokens : s_.buffers.block_tokens; }
  TILEWIRE_DEVICE int32_t slice_tokens() const {
    return s_.counts_only ? (static_cast<int32_t>(s_.tokens) + kCountSlices - 1) / kCountSlices : kSliceTokens;
  }
  TILEWIRE_DEVICE int32_t slices_in(int32_t round) const {
    const int64_t left = s_.tokens - round * block();
    const auto tokens = static_cast<int32_t>(left < block() ? left : block());
    const int32_t each = slice_tokens();
    return (tokens + each - 1) / each;
  }
  // visit(slice, round, first token, end)
  template <class Visit>
  TILEWIRE_DEVICE void for_each_slice(const Visit& visit) const {
    const int32_t of_round = slices_of_round(s_), each = slice_tokens();
    const int32_t slices = s_.rounds_of_tokens(s_.tokens) * of_round;
    const auto warps = static_cast<int32_t>(gridDim.x) * kTableWarps;
    for (int32_t slice = TableTeam::warp() * static_cast<int32_t>(gridDim.x) + static_cast<int32_t>(blockIdx.x);
         slice < slices; slice += warps) {
      const int32_t round = slice / of_round;
      const int64_t first = round * block();
      const int64_t begin = first + int64_t{slice % of_round} * each;
      int64_t end = first + block();
      if (end > s_.tokens) end = s_.tokens;
      if (end > begin + each) end = begin + each;
      if (begin < end) visit(slice, round, begin, end);
    }
  }
  // visit(entry, whether there is one) for the slots of tokens in their order, by a whole warp.
  template <class Visit>
  TILEWIRE_DEVICE void for_each_slot(int64_t begin, int64_t end, const Visit& visit) const {
    const auto last = static_cast<int32_t>(end * s_.top_k);
    for (auto first = static_cast<int32_t>(begin * s_.top_k); first < last; first += 32) {
      const int32_t entry = first + TableTeam::lane();
      visit(entry, entry < last);
    }
  }
  TILEWIRE_DEVICE int32_t read_place(int32_t entry) const {
    const int64_t at = entry / s_.top_k * p_.routes.token_stride + entry % s_.top_k * p_.routes.slot_stride;
    const int64_t expert = p_.routes.is_64_bit ? static_cast<const int64_t*>(p_.routes.ids)[at]
                                               : static_cast<const int32_t*>(p_.routes.ids)[at];
    if (expert >= 0 && expert < s_.experts.experts) return s_.experts.place_of[expert];
    if (expert != -1 && !p_.routes.is_counted) remark_route(entry, expert);
    return -1;
  }
  // What names no expert there is counts as -1. The first one to find such a route in a call says so.
  TILEWIRE_DEVICE void remark_route(int32_t entry, int64_t expert) const {
    auto* last = reinterpret_cast<unsigned long long*>(p_.scratch.remarked);
    if (atomicMax(last, static_cast<unsigned long long>(space_.epoch())) >= space_.epoch()) return;
    remark(p_, space_.epoch(), Remark::no_expert, {entry / s_.top_k, entry % s_.top_k, expert});
  }
  // The other node that a token goes to by this slot and by none before; -1: there is none. The places of a token's slots
  // are read by other lanes too.
  TILEWIRE_DEVICE int32_t first_to(int32_t entry, int32_t place) const {
    if (place < 0 || s_.topology().nodes == 1) return -1;
    const Node node = s_.topology().node(s_.experts.rank_of[place]);
    if (node == s_.node()) return -1;
    for (int32_t before = entry / s_.top_k * s_.top_k; before < entry; ++before) {
      const int32_t other = s_.routing->slots[before].place;
      if (other >= 0 && s_.topology().node(s_.experts.rank_of[other]) == node) return -1;
    }
    return node.value;
  }
  // By a whole warp: the number of this lane's row or token among those of the column, and the column's next.
  TILEWIRE_DEVICE int32_t number_of(int32_t column) const {
    const uint32_t alike = __match_any_sync(0xffffffff, column);
    const auto lane = static_cast<uint32_t>(TableTeam::lane());
    const uint32_t before = alike & ((uint32_t{1} << lane) - 1);
    const int32_t number = column < 0 ? 0 : own_[column] + __popc(before);
    __syncwarp();
    if (column >= 0 && before == 0) own_[column] += __popc(alike);
    __syncwarp();
    return number;
  }
  // Each of the counts of a column becomes what lies before it; gives all of them.
  TILEWIRE_DEVICE int32_t before_slices(int32_t* at, int32_t slices) const {
    constexpr int32_t kAtOnce = 8;
    const int32_t step = columns();
    int32_t sum = 0;
    for (int32_t first = 0; first < slices; first += kAtOnce) {
      int32_t counts[kAtOnce];
#pragma unroll
      for (int32_t i = 0; i < kAtOnce; ++i) counts[i] = first + i < slices ? at[int64_t{first + i} * step] : 0;
#pragma unroll
      for (int32_t i = 0; i < kAtOnce; ++i) {
        if (first + i < slices) at[int64_t{first + i} * step] = sum;
        sum += counts[i];
      }
    }
    return sum;
  }

  const FusedParameters& p_;
  const Schedule& s_;
  const CallSpace& space_;
  int32_t* own_;
};

}  // namespace tilewire::moe_dispatch

// The count role on a GPU: which rows and tokens go where, by all CTAs of a rank. The tokens of a round are cut into parts, a
// CTA's work each, and a part into slices, a warp's work each. What decides a place is the order of tokens and slots alone:
// all CTAs count, and when all have, each of them sums up what lies before its own parts.
#pragma once

#include "ops/moe_dispatch/device_team.cuh"

namespace tilewire::moe_dispatch {

class RouteCount {
 public:
  // `counts`: shared memory, counts_of_cta() numbers.
  TILEWIRE_DEVICE RouteCount(const FusedParameters& p, const CallSpace& space, int32_t* counts)
      : p_(p),
        s_(p.schedule),
        space_(space),
        counts_(counts),
        own_(counts + TableTeam::warp() * columns()),
        begins_(counts + kTableWarps * columns()),
        rounds_(s_.rounds_of_tokens(s_.tokens)),
        parts_(parts_of_round(rounds_, tokens_of(0), ctas())) {}

  // By the team of each CTA: what each of its parts has of each expert and node.
  TILEWIRE_DEVICE void count() const {
    for (auto unit = static_cast<int32_t>(blockIdx.x); unit < rounds_ * parts_; unit += ctas()) {
      count_part(unit / parts_, unit % parts_, true);
      int32_t* to = p_.scratch.part_counts + int64_t{unit} * columns();
      TableTeam::for_each(columns(), [&](int32_t c) {
        int32_t all = 0;
#pragma unroll
        for (int32_t w = 0; w < kTableWarps; ++w) all += counts_[w * columns() + c];
        to[c] = all;
      });
      TableTeam::join();
    }
  }

  // By the team of each CTA, when all have counted: the places of the rows of its own parts. The recorder, one of them, also
  // makes the record of the rank, gives it to the local peers, and says where the rows and tokens of each round begin.
  TILEWIRE_DEVICE void place(bool is_recorder) const {
    if (is_recorder) begin_record();
    const bool is_counted = rounds_ * parts_ <= ctas();  // what a CTA has counted is still there: it has one part
    Before before;
    for (int32_t round = 0; round < rounds_; ++round) {
      const int32_t part = own_part(round);
      if (part >= 0 && !is_counted) count_part(round, part, false);
      sum_up(round, part, is_recorder);
      TableTeam::join();
      if (is_recorder && round + 1 == rounds_ && TableTeam::warp() == kTableWarps - 1) give_record();
      find_begins(round, before, is_recorder);
      TableTeam::join();
      before = {begins_[columns()], begins_[columns() + 1]};
      if (part >= 0 && !s_.counts_only) place_part(round, part);
      TableTeam::join();
    }
    if (!is_recorder) return;
    if (rounds_ == 0) {
      TableTeam::join();  // no round has, since the record was begun
      if (TableTeam::warp() == kTableWarps - 1) give_record();
    }
    if (TableTeam::thread() != 0) return;
    s_.routing->first_row[rounds_ * s_.experts.experts] = before.rows;
    s_.routing->first_token[rounds_ * s_.topology().nodes] = before.tokens;
  }

 private:
  // Of the rounds before one.
  struct Before {
    int32_t rows = 0;
    int32_t tokens = 0;
  };

  TILEWIRE_DEVICE static int32_t ctas() { return static_cast<int32_t>(gridDim.x); }
  TILEWIRE_DEVICE int32_t columns() const { return s_.experts.experts + s_.topology().nodes; }
  TILEWIRE_DEVICE int32_t* own_record() const {
    return reinterpret_cast<int32_t*>(space_.half(s_.me()) + s_.buffers.record_offset(s_.me()));
  }
  // Tokens before a round; where rows are counted alone there is one round of all tokens.
  TILEWIRE_DEVICE int64_t first_of(int32_t round) const {
    return round * (s_.counts_only ? 0 : s_.buffers.block_tokens);
  }
  TILEWIRE_DEVICE int32_t tokens_of(int32_t round) const {
    const int64_t left = s_.tokens - first_of(round);
    return static_cast<int32_t>(s_.counts_only || left < s_.buffers.block_tokens ? left : s_.buffers.block_tokens);
  }
  // The part of the round that this CTA has, or -1.
  TILEWIRE_DEVICE int32_t own_part(int32_t round) const {
    const int32_t part = (static_cast<int32_t>(blockIdx.x) + ctas() - round * parts_ % ctas()) % ctas();
    return part < parts_ ? part : -1;
  }

  // visit(entry, whether there is one) for the slots of the own slice of a part in their order, by a whole warp. The slots of
  // a token are visited at a time, where lanes are enough.
  template <class Visit>
  TILEWIRE_DEVICE void for_each_slot(int32_t round, int32_t part, const Visit& visit) const {
    const int32_t tokens = tokens_of(round), of_part = div_up_32(tokens, parts_),
                  of_slice = div_up_32(of_part, kTableWarps);
    const int32_t part_begin = part * of_part, part_end = min(tokens, part_begin + of_part);
    const int32_t begin = part_begin + TableTeam::warp() * of_slice, end = min(part_end, begin + of_slice);
    const int32_t at_once = s_.top_k < 32 ? 32 / s_.top_k * s_.top_k : 32;
    const auto before = static_cast<int32_t>(first_of(round) * s_.top_k);
    for (int32_t first = begin * s_.top_k; first < end * s_.top_k; first += at_once) {
      const int32_t own = first + TableTeam::lane();
      visit(before + own, TableTeam::lane() < at_once && own < end * s_.top_k);
    }
  }
  TILEWIRE_DEVICE static int32_t div_up_32(int32_t a, int32_t b) { return (a + b - 1) / b; }

  // Into the counts of each warp, by the team. `is_first`: of what the caller's memory says, which is read once.
  TILEWIRE_DEVICE void count_part(int32_t round, int32_t part, bool is_first) const {
    for (int32_t c = TableTeam::lane(); c < columns(); c += 32) own_[c] = 0;
    __syncwarp();
    for_each_slot(round, part, [&](int32_t entry, bool is_slot) {
      const bool is_read = is_first || s_.counts_only;
      const int32_t place = !is_slot ? -1 : is_read ? read_place(entry) : s_.routing->slots[entry].place;
      if (is_slot && is_first && !s_.counts_only) s_.routing->slots[entry] = {place, 0};
      __syncwarp();  // first_to() may look at those of other lanes
      if (place >= 0) atomicAdd(own_ + place, 1);
      const int32_t node = s_.counts_only ? -1 : first_to(entry, place);
      if (node >= 0) atomicAdd(own_ + s_.experts.experts + node, 1);
    });
    TableTeam::join();
  }
  // Of each column what lies before each warp's slice of the part, in its round; and all of the round.
  TILEWIRE_DEVICE void sum_up(int32_t round, int32_t part, bool is_recorder) const {
    TableTeam::for_each(columns(), [&](int32_t c) {
      const int32_t* counts = p_.scratch.part_counts + int64_t{round} * parts_ * columns() + c;
      int32_t all = 0, before = 0;
#pragma unroll 12
      for (int32_t i = 0; i < parts_; ++i) {
        const int32_t count = counts[int64_t{i} * columns()];
        before += i < part ? count : 0;
        all += count;
      }
      begins_[c] = all;
      if (is_recorder) own_record()[kRecordHead + round * columns() + c] = all;
      if (part < 0) return;
#pragma unroll
      for (int32_t w = 0; w < kTableWarps; ++w) {
        const int32_t count = counts_[w * columns() + c];
        counts_[w * columns() + c] = before;
        before += count;
      }
    });
  }
  // Rows and tokens before those of each expert and node in the round, of all rounds; and behind them what comes before the
  // next round.
  TILEWIRE_DEVICE void find_begins(int32_t round, const Before& before, bool is_recorder) const {
    const bool is_told = is_recorder && !s_.counts_only;
    const auto sum = [&](int32_t count, int32_t first, int32_t from, int32_t* table, int32_t& all) {
      const int32_t end = sum_up_by_warp<int32_t>(
          count, first, [&](int32_t i) { return begins_[from + i]; },
          [&](int32_t i, int32_t value) {
            begins_[from + i] = value;
            if (is_told) table[int64_t{round} * count + i] = value;
          });
      if (TableTeam::lane() == 0) all = end;
    };
    const int32_t experts = s_.experts.experts;
    if (TableTeam::warp() == 0) sum(experts, before.rows, 0, s_.routing->first_row, begins_[columns()]);
    if (TableTeam::warp() == 1) {
      sum(s_.topology().nodes, before.tokens, experts, s_.routing->first_token, begins_[columns() + 1]);
    }
  }
  TILEWIRE_DEVICE void place_part(int32_t round, int32_t part) const {
    Routing& r = *s_.routing;
    const int32_t experts = s_.experts.experts;
    for_each_slot(round, part, [&](int32_t entry, bool is_slot) {
      const int32_t place = is_slot ? r.slots[entry].place : -1;
      const int32_t number = number_of(place);
      if (place >= 0) {
        r.slots[entry].number = number;
        r.own_rows[begins_[place] + number] = entry;
      }
      if (s_.topology().nodes == 1) return;
      const int32_t node = first_to(entry, place);
      const int32_t token_number = number_of(node < 0 ? -1 : experts + node);
      if (node >= 0) r.own_tokens[begins_[experts + node] + token_number] = entry / s_.top_k;
    });
  }

  TILEWIRE_DEVICE void begin_record() const {
    if (TableTeam::thread() != 0) return;
    int32_t* record = own_record();
    memcpy(record, &s_.tokens, sizeof(s_.tokens));
    record[2] = record[3] = 0;
  }
  // By one warp: the record for the local peers, and the words.
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
  // The other node that a token goes to by this slot and by none before; -1: there is none. By a whole warp.
  TILEWIRE_DEVICE int32_t first_to(int32_t entry, int32_t place) const {
    if (s_.topology().nodes == 1) return -1;
    Node node = place < 0 ? s_.node() : s_.topology().node(s_.experts.rank_of[place]);
    const bool is_other = node != s_.node();
    const int32_t lane = TableTeam::lane();
    const int32_t key = is_other ? entry / s_.top_k * s_.topology().nodes + node.value : -1 - lane;
    const uint32_t alike = __match_any_sync(0xffffffff, key);
    if (!is_other || (alike & ((uint32_t{1} << lane) - 1)) != 0) return -1;
    return s_.top_k > 32 && is_found_before(entry, node) ? -1 : node.value;
  }
  // Of a token with more slots than a warp has lanes. Lanes of the warp have written the places of the others.
  TILEWIRE_DEVICE bool is_found_before(int32_t entry, Node node) const {
    for (int32_t before = entry / s_.top_k * s_.top_k; before < entry; ++before) {
      const int32_t other = *static_cast<const volatile int32_t*>(&s_.routing->slots[before].place);
      if (other >= 0 && s_.topology().node(s_.experts.rank_of[other]) == node) return true;
    }
    return false;
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

  const FusedParameters& p_;
  const Schedule& s_;
  const CallSpace& space_;
  int32_t* counts_;  // of each warp, by column: an expert's place, or experts + a node
  int32_t* own_;     // this warp's
  int32_t* begins_;  // of the columns, and two more
  int32_t rounds_, parts_;
};

}  // namespace tilewire::moe_dispatch

// The route role on a GPU: the tables of a rank from the records of all ranks, by the threads of one CTA. What each table
// holds says routing.h; routing_tables.cc is the same for a CPU rank.
#pragma once

#include "ops/moe_dispatch/device_team.cuh"

namespace tilewire::moe_dispatch {

// By the team of one CTA, whole.
class RouteTables {
 public:
  TILEWIRE_DEVICE RouteTables(const FusedParameters& p, const CallSpace& space)
      : p_(p),
        s_(p.schedule),
        r_(*p.schedule.routing),
        records_(space.half(s_.me()) + s_.buffers.record_offset(Rank{0})),
        most_rows_(p.most_rows),
        epoch_(space.epoch()) {}

  TILEWIRE_DEVICE void make() const {
    begin();
    TableTeam::join();
    add_up_places();
    TableTeam::join();
    add_up_ranks();
    TableTeam::join();
    find_rounds();
    TableTeam::join();
    if (TableTeam::warp() == 0) make_nodes();
    make_staged();
    make_cells();
    TableTeam::join();
    make_groups();
    make_results();
    TableTeam::join();
    if (TableTeam::warp() == 0) make_tiles();
  }

 private:
  TILEWIRE_DEVICE const int32_t* record_of(int32_t rank) const {
    return reinterpret_cast<const int32_t*>(records_ + rank * s_.buffers.record_bytes);
  }
  // A column is a place, or experts + a node.
  TILEWIRE_DEVICE int32_t count(int32_t source, int32_t round, int32_t column) const {
    if (round >= r_.rounds_of[source]) return 0;
    return record_of(source)[kRecordHead + int64_t{round} * (s_.experts.experts + s_.topology().nodes) + column];
  }
  TILEWIRE_DEVICE int32_t first_own() const { return s_.experts.first_of(s_.topology(), s_.me()); }
  TILEWIRE_DEVICE int32_t first_of_node() const { return s_.experts.first_on(s_.topology(), s_.node()); }

  TILEWIRE_DEVICE void begin() const {
    if (TableTeam::thread() == 0) {
      r_.rounds = 0;
      r_.overflow_rank = Rank{-1};
      r_.overflow_rows = 0;
      r_.most_rows = most_rows_;
      r_.places = s_.experts.end_on(s_.topology(), s_.node()) - first_of_node();
      r_.groups = s_.phases * s_.own_experts();
    }
    TableTeam::for_each(s_.ranks(), [&](int32_t rank) {
      int64_t tokens;
      memcpy(&tokens, record_of(rank), sizeof(tokens));
      r_.tokens_of[rank] = tokens;
      r_.rounds_of[rank] = s_.rounds_of_tokens(tokens);
    });
  }
  TILEWIRE_DEVICE void add_up_places() const {
    TableTeam::for_each(s_.experts.experts, [&](int32_t place) {
      int64_t rows = 0;
#pragma unroll 4
      for (int32_t rank = 0; rank < s_.ranks(); ++rank) {
        const int32_t rounds = r_.rounds_of[rank];
        for (int32_t round = 0; round < rounds; ++round) rows += count(rank, round, place);
      }
      r_.place_rows[place] = rows;
    });
  }
  TILEWIRE_DEVICE void add_up_ranks() const {
    TableTeam::for_each_by_warp(s_.ranks(), [&](int32_t rank) {
      const int32_t first = s_.experts.first_of(s_.topology(), Rank{rank});
      const int64_t rows = sum_up_by_warp<int64_t>(
          s_.experts.count_of(s_.topology(), Rank{rank}), 0, [&](int32_t e) { return r_.place_rows[first + e]; },
          [&](int32_t e, int64_t before) {
            if (rank == s_.me().value) r_.offsets[e] = before;
          });
      if (TableTeam::lane() != 0) return;
      r_.rows_of[rank] = rows;
      if (rank == s_.me().value) r_.offsets[s_.own_experts()] = rows;
    });
  }
  // Where a rank gets too many rows nothing moves. The numbers are the same on all ranks. By one warp.
  TILEWIRE_DEVICE void find_rounds() const {
    if (TableTeam::warp() != 0) return;
    int32_t rounds = 0, full = INT32_MAX;
    for (int32_t rank = TableTeam::lane(); rank < s_.ranks(); rank += 32) {
      if (full == INT32_MAX && r_.rows_of[rank] > most_rows_) full = rank;
      rounds = r_.rounds_of[rank] > rounds ? r_.rounds_of[rank] : rounds;
    }
    full = __reduce_min_sync(0xffffffff, full);
    rounds = __reduce_max_sync(0xffffffff, rounds);
    const bool has_overflow = full < INT32_MAX && !s_.counts_only;
    if (has_overflow || s_.counts_only) {
      for (int32_t rank = TableTeam::lane(); rank < s_.ranks(); rank += 32) r_.rounds_of[rank] = 0;
    }
    if (TableTeam::lane() != 0) return;
    if (has_overflow) {
      r_.overflow_rank = Rank{full};
      r_.overflow_rows = r_.rows_of[full];
      remark(p_, epoch_, Remark::overflow, {full, r_.overflow_rows, most_rows_});
    } else if (!s_.counts_only) {
      r_.rounds = rounds;
      if (r_.offsets[s_.own_experts()] > p_.results.rows) {
        remark(p_, epoch_, Remark::more_rows, {s_.me().value, r_.offsets[s_.own_experts()], p_.results.rows});
      }
    }
  }

  TILEWIRE_DEVICE void make_staged() const {
    TableTeam::for_each(r_.rounds * s_.ranks(), [&](int32_t i) {
      const Rank rank{i % s_.ranks()};
      const int32_t round = i / s_.ranks();
      r_.staged[i] =
          s_.topology().same_node(rank, s_.me()) ? 0 : count(rank.value, round, s_.experts.experts + s_.node().value);
    });
    TableTeam::for_each(r_.rounds * s_.width() * s_.pieces * s_.ranks(), [&](int32_t i) { r_.piece_rows[i] = 0; });
    TableTeam::join();
  }
  TILEWIRE_DEVICE void make_nodes() const {
    const int32_t nodes = s_.topology().nodes;
    sum_up_by_warp<int32_t>(
        r_.rounds * nodes, 0,
        [&](int32_t i) {
          const int32_t tokens = count(s_.me().value, i / nodes, s_.experts.experts + i % nodes);
          r_.node_tokens[i] = tokens;
          return tokens;
        },
        [&](int32_t i, int32_t before) { r_.node_begin[i] = before; });
  }
  // For each rank of the node its rows of a round lie by phase, expert and source.
  TILEWIRE_DEVICE void make_cells() const {
    TableTeam::for_each_by_warp(r_.rounds * s_.width(), [&](int32_t i) {
      const int32_t round = i / s_.width(), local = i % s_.width();
      int32_t begin = 0;
      for (int32_t phase = 0; phase < s_.phases; ++phase) begin = make_cells_of(round, local, phase, begin);
    });
  }
  TILEWIRE_DEVICE int32_t make_cells_of(int32_t round, int32_t local, int32_t phase, int32_t begin) const {
    const Rank to = s_.local(local);
    const int32_t places = s_.experts.count_of(s_.topology(), to);
    const int32_t first_place = s_.experts.first_of(s_.topology(), to) - first_of_node();
    const RowRange positions = s_.positions_of(phase);
    const auto first = static_cast<int32_t>(positions.begin), each = static_cast<int32_t>(positions.rows());
    const auto cell_of = [&](int32_t i) {
      return (round * r_.places + first_place + i / each) * s_.ranks() + first + i % each;
    };
    return sum_up_by_warp<int32_t>(
        places * each, begin,
        [&](int32_t i) {
          const int32_t place = i / each, position = first + i % each;
          const int32_t rows = count(s_.source_at[position].value, round, first_of_node() + first_place + place);
          if (rows > 0) {
            const int32_t piece = place * s_.pieces / places;
            atomicAdd(r_.piece_rows + ((round * s_.width() + local) * s_.pieces + piece) * s_.ranks() + position, rows);
          }
          r_.cells[cell_of(i)].rows = rows;
          return rows;
        },
        [&](int32_t i, int32_t before) { r_.cells[cell_of(i)].begin = before; });
  }
  TILEWIRE_DEVICE void make_groups() const {
    const int32_t own = s_.own_experts(), groups = r_.groups;
    TableTeam::for_each(r_.rounds * (groups + 1), [&](int32_t i) {
      const int32_t round = i / (groups + 1), group = i % (groups + 1);
      if (groups == 0) {
        r_.group_begin[i] = 0;
      } else if (group == groups) {
        const Cell& last = s_.cell(round, s_.first_own_place() + own - 1, s_.ranks() - 1);
        r_.group_begin[i] = last.begin + last.rows;
      } else {
        const auto position = static_cast<int32_t>(s_.positions_of(group / own).begin);
        r_.group_begin[i] = s_.cell(round, s_.first_own_place() + group % own, position).begin;
      }
    });
  }
  // Results lie by expert, source rank, token and slot, whatever the rounds.
  TILEWIRE_DEVICE void make_results() const {
    const int32_t own = s_.own_experts(), ranks = s_.ranks();
    TableTeam::for_each(own, [&](int32_t e) {
      int64_t row = r_.offsets[e];
#pragma unroll 4
      for (int32_t i = 0; i < ranks * r_.rounds; ++i) {
        const int32_t position = s_.position_of[i / r_.rounds], round = i % r_.rounds;
        const int32_t rows = s_.cell(round, s_.first_own_place() + e, position).rows;
        r_.result_row[(round * own + e) * ranks + position] = row;
        row += rows;
      }
    });
  }
  TILEWIRE_DEVICE void make_tiles() const {
    const int32_t groups = r_.groups, blocks = s_.columns.blocks();
    const int64_t all = sum_up_by_warp<int64_t>(
        r_.rounds * groups, 0,
        [&](int32_t i) {
          const int32_t* begins = r_.group_begin + i / groups * (groups + 1) + i % groups;
          return int64_t{(begins[1] - begins[0] + s_.tile_rows - 1) / s_.tile_rows} * blocks;
        },
        [&](int32_t i, int64_t before) { r_.group_tile[i] = before; });
    if (TableTeam::lane() == 0) r_.group_tile[r_.rounds * groups] = all;
  }

  const FusedParameters& p_;
  const Schedule& s_;
  Routing& r_;
  const std::byte* records_;
  int64_t most_rows_;
  Epoch epoch_;
};

}  // namespace tilewire::moe_dispatch

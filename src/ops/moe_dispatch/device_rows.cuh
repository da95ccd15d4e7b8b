// The roles of MoE dispatch that move rows on a GPU: push, pack and forward, by warps beside the tiles. The warps of a role
// share the rows of each work; the last one to be done publishes. Behind `routed` only.
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/ptx/load_once.cuh"
#include "device/reduction/partial_tiles.cuh"
#include "ops/moe_dispatch/device_limits.h"
#include "ops/moe_dispatch/device_parameters.cuh"
#include "ops/moe_dispatch/roles.h"
#include "ops/moe_dispatch/row_moves.h"

namespace tilewire::moe_dispatch {

constexpr uint32_t kMovePauseNs = 120;

constexpr int32_t kCountRole = Roles::number("count"), kRouteRole = Roles::number("route"),
                  kPushRole = Roles::number("push"), kPackRole = Roles::number("pack"),
                  kForwardRole = Roles::number("forward"), kComputeRole = Roles::number("compute"),
                  kSendRole = Roles::number("send"), kCallRole = Roles::number("call");

// What a role has before its gate, and what comes behind it.
template <class Role>
class BeforeGate {
 public:
  using Work = typename Role::Work;
  TILEWIRE_DEVICE explicit BeforeGate(const Role& role) : role_(role) {}
  TILEWIRE_DEVICE bool next(Work& w) { return role_.next(w) && !w.is_gate; }
  TILEWIRE_DEVICE Need need(const Work& w, int32_t i) const { return role_.need(w, i); }
  TILEWIRE_DEVICE Publish publish(const Work& w, int32_t i) const { return role_.publish(w, i); }

 private:
  Role role_;
};

template <class Role>
class BehindGate {
 public:
  using Work = typename Role::Work;
  TILEWIRE_DEVICE explicit BehindGate(const Role& role) : role_(role) {}
  TILEWIRE_DEVICE bool next(Work& w) {
    while (!is_behind_ && role_.next(w)) is_behind_ = w.is_gate;
    return role_.next(w);
  }
  TILEWIRE_DEVICE Need need(const Work& w, int32_t i) const { return role_.need(w, i); }
  TILEWIRE_DEVICE Publish publish(const Work& w, int32_t i) const { return role_.publish(w, i); }

 private:
  Role role_;
  bool is_behind_ = false;
};

// Which of the warps of a role this one is. Rows of all works, one behind the other, are dealt out to them in turn, so many at a
// time: few rows are for few of the warps, and the others go on with the works behind them.
struct MoveTeam {
  int32_t part = 0;
  int32_t parts = 1;
  int32_t at_once = 1;
  int32_t rows = INT32_MAX;  // all of them together, where that is known
};

// By a whole warp: a row to each place that a lane of `lanes` has. `bytes`: a multiple of 16, as addresses are. What a warp
// has under way at once is what its rate is made of.
template <int32_t kAtOnce>
TILEWIRE_DEVICE void copy_row(uint32_t lanes, std::byte* to, const std::byte* from, int32_t bytes) {
  const auto* source = reinterpret_cast<const uint4*>(from);
  const int32_t units = bytes / 16;
  for (int32_t begin = 0; begin < units; begin += 32 * kAtOnce) {
    const auto first = begin + static_cast<int32_t>(threadIdx.x % 32);
    uint4 units_of[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (first + 32 * i < units) units_of[i] = ptx::load_once(source + first + 32 * i);
    }
    for (uint32_t left = lanes; left != 0; left &= left - 1) {
      const auto place = __shfl_sync(0xffffffff, reinterpret_cast<uint64_t>(to), __ffs(static_cast<int32_t>(left)) - 1);
      auto* target = reinterpret_cast<uint4*>(place);
#pragma unroll
      for (int32_t i = 0; i < kAtOnce; ++i) {
        if (first + 32 * i < units) target[first + 32 * i] = units_of[i];
      }
    }
  }
}
template <int32_t kAtOnce>
TILEWIRE_DEVICE void copy_row(std::byte* to, const std::byte* from, int32_t bytes) {
  copy_row<kAtOnce>(1, to, from, bytes);
}

// kAtOnce: pieces of 16 bytes that a lane has under way. `is_noting`: whether the place in the trace is this warp's.
template <int32_t kAtOnce>
class RowMover {
 public:
  TILEWIRE_DEVICE RowMover(const FusedParameters& p, const CallSpace& space, TracePlace place, bool is_noting)
      : p_(p), s_(p.schedule), space_(space), place_(place), is_noting_(is_noting) {}

  // Of these rounds, as the next.
  TILEWIRE_DEVICE void push(const MoveTeam& team, const RowRange& rounds) const {
    run(
        PushRole(s_), kPushRole, team, rounds,
        [&](const PushWork& w) {
          return WorkToMove{p_.scratch.pushed + (int64_t{w.round} * s_.pieces + w.piece) * s_.width() +
                                s_.topology().local(w.to).value,
                            w.round, rows_of(s_, w)};
        },
        [&](const PushWork& w) {
          return note(w.round, s_.me(), kPushRole, w.to == s_.me() ? TraceLink::copy : TraceLink::node);
        },
        [&](const PushWork& w, const RowRange& rows) {
          // A lane looks up a row, all of them move it.
          for (auto first = static_cast<int32_t>(rows.begin); first < rows.end; first += 32) {
            const int32_t own = first + lane();
            RowMove move;
            if (own < rows.end) move = row_of(s_, w, own);
            for (int32_t i = 0; i < 32 && first + i < rows.end; ++i) {
              const RowMove now = of_lane(move, i);
              const std::byte* from = p_.x.data + now.origin.token * p_.x.pitch_bytes;
              copy_row<kAtOnce>(begin_row(w.round, now, lane() == 0), from, row_bytes());
            }
          }
        });
  }

  TILEWIRE_DEVICE void pack(const MoveTeam& team, const RowRange& rounds) const {
    run(
        PackRole(s_), kPackRole, team, rounds,
        [&](const PackWork& w) {
          const int64_t bucket = int64_t{w.chunk.round} * s_.topology().nodes + w.chunk.to.value;
          return WorkToMove{p_.scratch.packed + bucket * s_.most_chunks() + w.chunk.number, w.chunk.round,
                            rows_of(s_, w)};
        },
        [&](const PackWork& w) { return note(w.chunk.round, s_.me(), kPackRole, TraceLink::copy); },
        [&](const PackWork& w, const RowRange& rows) {
          const auto header = static_cast<int32_t>(header_bytes(s_.top_k));
          std::byte* first = space_.half(s_.me()) + s_.outbox_offset(w.chunk.to, w.chunk.round, w.tokens.begin);
          for (auto i = static_cast<int32_t>(rows.begin); i < rows.end; ++i) {
            const int32_t token = token_of(s_, w, i);
            std::byte* to = first + i * s_.buffers.token_pitch;
            write_header(to, header / 4, w.chunk.to, token);
            copy_row<kAtOnce>(to + header, p_.x.data + token * p_.x.pitch_bytes, row_bytes());
          }
        });
  }

  // A token is read once, whatever the rows that it is spread to.
  TILEWIRE_DEVICE void forward(const MoveTeam& team) const {
    run(
        ForwardRole(s_), kForwardRole, team, {0, s_.rounds()},
        [&](const ForwardWork& w) {
          return WorkToMove{p_.scratch.forwarded + int64_t{w.round} * s_.ranks() + w.source.value, w.round,
                            static_cast<int32_t>(w.tokens.rows()), true};
        },
        [&](const ForwardWork& w) { return note(w.round, w.source, kForwardRole, TraceLink::node); },
        [&](const ForwardWork& w, const RowRange& tokens) {
          const std::byte* first =
              space_.half(s_.me()) + s_.buffers.staging_offset(s_.entry(w.source, s_.me()), w.round, w.tokens.begin);
          for (int64_t i = tokens.begin; i < tokens.end; ++i) {
            const std::byte* from = first + i * s_.buffers.token_pitch;
            const int32_t token = *reinterpret_cast<const int32_t*>(from);
            for (int32_t first_slot = 0; first_slot < s_.top_k; first_slot += 32) {
              const int32_t slot = first_slot + lane();
              HeaderSlot at;
              if (slot < s_.top_k) at = reinterpret_cast<const HeaderSlot*>(from + sizeof(int32_t))[slot];
              const bool has_row = at.place >= 0;
              std::byte* to = nullptr;
              if (has_row) to = begin_row(w.round, row_of(s_, w, {token, slot}, at), true);
              const uint32_t lanes = __ballot_sync(0xffffffff, has_row);
              if (lanes != 0) copy_row<kAtOnce>(lanes, to, from + header_bytes(s_.top_k), row_bytes());
            }
          }
        });
  }

 private:
  TILEWIRE_DEVICE static int32_t lane() { return static_cast<int32_t>(threadIdx.x % 32); }
  TILEWIRE_DEVICE static TraceNote note(int32_t round, Rank source, int32_t role, TraceLink link) {
    return {.work = round, .source = source.value, .role = static_cast<uint8_t>(role), .link = link};
  }
  TILEWIRE_DEVICE static RowMove of_lane(const RowMove& move, int32_t i) {
    return {{__shfl_sync(0xffffffff, move.origin.token, i), __shfl_sync(0xffffffff, move.origin.slot, i)},
            Rank{__shfl_sync(0xffffffff, move.to.value, i)},
            __shfl_sync(0xffffffff, move.row, i)};
  }

  struct WorkToMove {
    uint64_t* counter;  // of its parts that are done
    int32_t round;
    int32_t rows;
    bool has_all_warps =
        false;  // what it publishes is about works before it, too: each warp of the team is a part of it
  };

  // Ends where the call is given up. work_of(work): a WorkToMove; move(work, rows of it): these, by this warp.
  template <class Role, class WorkOf, class NoteOf, class Move>
  TILEWIRE_DEVICE void run(const Role& of, int32_t number, const MoveTeam& team, const RowRange& rounds,
                           const WorkOf& work_of, const NoteOf& note_of, const Move& move) const {
    BehindGate<Role> role(of);
    CallGate gate(space_, number, kMovePauseNs);
    const TraceLane trace = space_.trace(place_);
    const bool is_leader = lane() == 0, is_noted = is_noting_ && is_leader && trace.is_on();
    int32_t begin = 0;                             // of the next work, among all rows
    int32_t own_begin = team.part * team.at_once;  // of the next rows that are this warp's
    for (typename Role::Work w; own_begin < team.rows && role.next(w);) {
      const WorkToMove work = work_of(w);
      if (work.round < rounds.begin) continue;
      if (work.round >= rounds.end) return;
      const int32_t end = begin + work.rows, first_turn = begin / team.at_once;
      const int32_t parts = work.has_all_warps ? team.parts : (end - 1) / team.at_once - first_turn + 1;
      while (own_begin < end) {
        const int32_t own_end = own_begin + team.at_once;
        if (is_noted) trace.wait(note_of(w));
        if (!gate.pass(role, w)) return;
        if (is_noted) trace.begin();
        move(w, {(own_begin > begin ? own_begin : begin) - begin, (own_end < end ? own_end : end) - begin});
        __syncwarp();
        if (is_noted) trace.end();
        if (!work.has_all_warps) finish_part(role, w, work, parts);
        if (own_end > end) break;
        own_begin += team.at_once * team.parts;
      }
      if (work.has_all_warps && w.publishes > 0) finish_part(role, w, work, parts);
      begin = end;
    }
  }
  template <class Role>
  TILEWIRE_DEVICE void finish_part(const BehindGate<Role>& role, const typename Role::Work& w, const WorkToMove& work,
                                   int32_t parts) const {
    if (lane() != 0 || !is_last_part(work.counter, parts)) return;
    for (int32_t i = 0; i < w.publishes; ++i) space_.publish(role.publish(w, i));
  }

  TILEWIRE_DEVICE int32_t row_bytes() const { return static_cast<int32_t>(s_.buffers.row_pitch); }
  // Where it goes; `is_writer`: who says whose it is.
  TILEWIRE_DEVICE std::byte* begin_row(int32_t round, const RowMove& move, bool is_writer) const {
    std::byte* half = space_.half(move.to);
    if (is_writer) *reinterpret_cast<RowOrigin*>(half + s_.buffers.origins_offset(round, move.row)) = move.origin;
    return half + s_.buffers.rows_offset(round, move.row);
  }
  TILEWIRE_DEVICE void write_header(std::byte* to, int32_t words, Node node, int32_t token) const {
    for (int32_t i = lane(); i < words; i += 32) {
      int32_t word = i == 0 ? token : 0;
      if (i > 0 && i <= 2 * s_.top_k) {
        const HeaderSlot at = header_of(s_, node, token, (i - 1) / 2);
        word = i % 2 == 1 ? at.place : at.number;
      }
      reinterpret_cast<int32_t*>(to)[i] = word;
    }
  }

  const FusedParameters& p_;
  const Schedule& s_;
  const CallSpace& space_;
  TracePlace place_;
  bool is_noting_;
};

}  // namespace tilewire::moe_dispatch

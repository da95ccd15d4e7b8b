// The roles of MoE dispatch that move rows on a GPU: push, pack and forward, by warps beside the tiles. The warps of a role
// share the rows of each work; the last one to be done publishes. Behind `routed` only.
#pragma once

#include "device/comm/call_gate.cuh"
#include "device/reduction/partial_tiles.cuh"
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

// Which of the warps of a role this one is.
struct MoveTeam {
  int32_t part = 0;
  int32_t parts = 1;
};

// Warps 2 and 3 of each CTA but for those that speak for the rank. With several nodes every other one forwards; the others
// pack, which waits for nothing, and push.
TILEWIRE_HD constexpr int32_t helpers_of(int32_t ctas) { return 2 * ctas - kRankWarps; }

// By a whole warp. `bytes`: a multiple of 16, as addresses are.
TILEWIRE_DEVICE void copy_row(std::byte* to, const std::byte* from, int32_t bytes) {
  constexpr int32_t kAtOnce = 8;
  const auto* source = reinterpret_cast<const uint4*>(from);
  auto* target = reinterpret_cast<uint4*>(to);
  const int32_t units = bytes / 16;
  for (auto first = static_cast<int32_t>(threadIdx.x % 32); first < units; first += 32 * kAtOnce) {
    uint4 units_of[kAtOnce];
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (first + 32 * i < units) units_of[i] = source[first + 32 * i];
    }
#pragma unroll
    for (int32_t i = 0; i < kAtOnce; ++i) {
      if (first + 32 * i < units) target[first + 32 * i] = units_of[i];
    }
  }
}

class RowMover {
 public:
  TILEWIRE_DEVICE RowMover(const FusedParameters& p, const CallSpace& space, TracePlace place)
      : p_(p), s_(p.schedule), space_(space), place_(place) {}

  TILEWIRE_DEVICE void push(const MoveTeam& team) const {
    run(
        PushRole(s_), kPushRole, team,
        [&](const PushWork& w) {
          return p_.scratch.pushed + (int64_t{w.round} * s_.pieces + w.piece) * s_.width() +
                 s_.topology().local(w.to).value;
        },
        [&](const PushWork& w) {
          return note(w.round, s_.me(), kPushRole, w.to == s_.me() ? TraceLink::copy : TraceLink::node);
        },
        [&](const PushWork& w) {
          const int32_t rows = rows_of(s_, w);
          // A lane looks up a row, all of them move it.
          for (int32_t first = team.part; first < rows; first += 32 * team.parts) {
            const int32_t own = first + lane() * team.parts;
            RowMove move;
            if (own < rows) move = row_of(s_, w, own);
            for (int32_t i = 0; i < 32 && first + i * team.parts < rows; ++i) {
              const RowMove now = of_lane(move, i);
              place_row(w.round, now, p_.x.data + now.origin.token * p_.x.pitch_bytes);
            }
          }
        });
  }

  TILEWIRE_DEVICE void pack(const MoveTeam& team) const {
    run(
        PackRole(s_), kPackRole, team,
        [&](const PackWork& w) {
          return p_.scratch.packed +
                 (int64_t{w.chunk.round} * s_.topology().nodes + w.chunk.to.value) * s_.most_chunks() + w.chunk.number;
        },
        [&](const PackWork& w) { return note(w.chunk.round, s_.me(), kPackRole, TraceLink::copy); },
        [&](const PackWork& w) {
          const auto header = static_cast<int32_t>(header_bytes(s_.top_k));
          std::byte* first = space_.half(s_.me()) + s_.outbox_offset(w.chunk.to, w.chunk.round, w.tokens.begin);
          for (int32_t i = team.part; i < rows_of(s_, w); i += team.parts) {
            const int32_t token = token_of(s_, w, i);
            std::byte* to = first + i * s_.buffers.token_pitch;
            write_header(to, header / 4, w.chunk.to, token);
            copy_row(to + header, p_.x.data + token * p_.x.pitch_bytes, static_cast<int32_t>(s_.buffers.row_pitch));
          }
        });
  }

  TILEWIRE_DEVICE void forward(const MoveTeam& team) const {
    run(
        ForwardRole(s_), kForwardRole, team,
        [&](const ForwardWork& w) { return p_.scratch.forwarded + int64_t{w.round} * s_.ranks() + w.source.value; },
        [&](const ForwardWork& w) { return note(w.round, w.source, kForwardRole, TraceLink::node); },
        [&](const ForwardWork& w) {
          const std::byte* first =
              space_.half(s_.me()) + s_.buffers.staging_offset(s_.entry(w.source, s_.me()), w.round, w.tokens.begin);
          for (int64_t i = team.part; i < w.tokens.rows(); i += team.parts) {
            const std::byte* from = first + i * s_.buffers.token_pitch;
            const int32_t token = *reinterpret_cast<const int32_t*>(from);
            for (int32_t slot = 0; slot < s_.top_k; ++slot) {
              const HeaderSlot at = reinterpret_cast<const HeaderSlot*>(from + sizeof(int32_t))[slot];
              if (at.place < 0) continue;
              place_row(w.round, row_of(s_, w, {token, slot}, at), from + header_bytes(s_.top_k));
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

  // Ends where the call is given up.
  template <class Role, class CounterOf, class NoteOf, class Move>
  TILEWIRE_DEVICE void run(const Role& of, int32_t number, const MoveTeam& team, const CounterOf& counter_of,
                           const NoteOf& note_of, const Move& move) const {
    BehindGate<Role> role(of);
    CallGate gate(space_, number, kMovePauseNs);
    const TraceLane trace = space_.trace(place_);
    const bool is_leader = lane() == 0, is_noted = is_leader && team.part == 0 && trace.is_on();
    for (typename Role::Work w; role.next(w);) {
      if (is_noted) trace.wait(note_of(w));
      if (!gate.pass(role, w)) return;
      if (is_noted) trace.begin();
      move(w);
      __syncwarp();
      if (is_noted) trace.end();
      if (!is_leader || w.publishes == 0 || !is_last_part(counter_of(w), team.parts)) continue;
      for (int32_t i = 0; i < w.publishes; ++i) space_.publish(role.publish(w, i));
    }
  }

  TILEWIRE_DEVICE void place_row(int32_t round, const RowMove& move, const std::byte* from) const {
    std::byte* half = space_.half(move.to);
    copy_row(half + s_.buffers.rows_offset(round, move.row), from, static_cast<int32_t>(s_.buffers.row_pitch));
    if (lane() == 0) *reinterpret_cast<RowOrigin*>(half + s_.buffers.origins_offset(round, move.row)) = move.origin;
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
};

}  // namespace tilewire::moe_dispatch

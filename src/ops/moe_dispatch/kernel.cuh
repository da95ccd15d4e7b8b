// The fused kernel of MoE dispatch + grouped GEMM: one launch a rank and call. Entry, role switch, roles; the order of all
// work is that of the iterators of schedule.h.
//
// All CTAs compute, in clusters of the form with one compute worker each. Before that, the computing warps make the tables
// of the call: each CTA counts and places a part of the own tokens (device_count.cuh); the CTA that is the last to have
// counted its part waits for the records of all ranks and makes the tables (device_route.cuh); the others wait for them.
// Then they move the first of the own rows (device_rows.cuh). Beside the tiles warp 2 of each CTA and
// warp 3 of most move what comes later; warp 3 of the first three is call, send and relay. Release is who frees a round last.
#pragma once

#include "device/comm/rank_warps.cuh"
#include "device/tile/gemm_kernel.cuh"
#include "ops/moe_dispatch/device_count.cuh"
#include "ops/moe_dispatch/device_results.cuh"
#include "ops/moe_dispatch/device_route.cuh"
#include "ops/moe_dispatch/device_tiles.cuh"

namespace tilewire::moe_dispatch {

// Waits for the tables first, as the host's drain does by coming last.
class GatedDrain {
 public:
  using Work = DrainWork;
  TILEWIRE_DEVICE explicit GatedDrain(const Schedule& s) : s_(s), role_(s) {}
  TILEWIRE_DEVICE bool next(Work& w) {
    if (is_behind_) return role_.next(w);
    is_behind_ = true;
    w = Work{};
    w.needs = 1;
    w.round = -1;
    return true;
  }
  TILEWIRE_DEVICE Need need(const Work& w, int32_t i) const {
    return w.round < 0 ? Need{s_.routed(), 0} : role_.need(w, i);
  }
  TILEWIRE_DEVICE Publish publish(const Work&, int32_t) const { return {}; }

 private:
  const Schedule& s_;
  DrainRole role_;
  bool is_behind_ = false;
};

// Pieces of a row that a lane has under way at once, as registers are: of who computes, before the tiles; and beside them.
constexpr int32_t kComputePieces = 12, kHelperPieces = 7;

// The own rounds whose tokens are packed, and whose rows are pushed, before the tiles: those that have a slot from the start.
// Within one node rows take their time on its links, and those of later rounds move beside the tiles.
struct FirstRounds {
  int32_t packed = 0;
  int32_t pushed = 0;
  TILEWIRE_DEVICE explicit FirstRounds(const Schedule& s) {
    const int32_t rounds = s.rounds_of(s.me());
    packed = s.window < rounds ? s.window : rounds;
    pushed = packed > 1 && !s.frame.has_network() ? 1 : packed;
  }
};

// Send, and before it what the own node's ranks are told of other nodes' counts. By a whole warp.
TILEWIRE_DEVICE void run_sends(const FusedParameters& p, const CallSpace& space) {
  const Schedule& s = p.schedule;
  if (!s.frame.has_network() || space.is_aborted()) return;
  CallGate gate(space, kSendRole, kRankPauseNs);
  CommandPoster ring(space, Roles::ring(kSendRole));
  const auto note = [&](const SendWork& w) {
    if (w.command.kind != CommandKind::write) return;
    const TraceLane trace = space.trace(TracePlace::send);
    trace.wait({.work = w.chunk.round,
                .source = s.me().value,
                .bytes = w.command.units * static_cast<uint32_t>(kWireUnitBytes),
                .role = static_cast<uint8_t>(kSendRole),
                .link = TraceLink::network});
    trace.begin();
    trace.end();
  };
  if (!run_commands(space, gate, ring, BeforeGate(SendRole(s)), note)) return;
  BeforeGate<ForwardRole> records{ForwardRole(s)};
  CallGate forward_gate(space, kForwardRole, kRankPauseNs);
  for (ForwardWork w; records.next(w);) {
    if (!forward_gate.pass(records, w)) return;
    const int64_t offset = s.buffers.record_offset(w.source);
    int64_t tokens;
    memcpy(&tokens, space.half(s.me()) + offset, sizeof(tokens));
    copy_row<kHelperPieces>(space.half(w.to) + offset, space.half(s.me()) + offset,
                            static_cast<int32_t>(s.record_bytes(s.rounds_of_tokens(tokens))));
    __syncwarp();
    if (threadIdx.x % 32 == 0) space.publish(records.publish(w, 0));
  }
  GatedDrain routed(s);
  DrainWork w;
  routed.next(w);
  if (!gate.pass(routed, w)) return;
  run_commands(space, gate, ring, BehindGate(SendRole(s)), note);
}

// What lies in the shared memory of a CTA beside its tiles.
template <class Form>
struct BesideMemory {
  uint32_t base;

  TILEWIRE_DEVICE uint32_t finish() const { return base; }
  TILEWIRE_DEVICE uint32_t begun() const { return base + CtaFinish::kSharedBytes; }
  TILEWIRE_DEVICE uint32_t is_valid() const { return begun() + 8; }
  TILEWIRE_DEVICE uint32_t answer() const { return is_valid() + 4; }
  TILEWIRE_DEVICE uint32_t tables() const { return base + kTables; }
  static constexpr int32_t kTables = 32;
  static_assert(CtaFinish::kSharedBytes + 16 <= kTables &&
                kTables + kComputeGroups * ResultTarget<Form>::kTableBytes <= Form::kSpareBytes);
};

// What the warps of a CTA do before and beside its tiles.
template <class Form>
class Beside {
 public:
  // `stages`: the shared memory of the tiles, which are not there before begin() has ended.
  TILEWIRE_DEVICE Beside(const FusedParameters& p, const CallSpace& space, const SharedTiles<Form>& shared,
                         uint8_t* stages)
      : p_(p), space_(space), shared_(shared), memory_{shared.spare()}, stages_(stages), finish_(memory_.finish()) {}

  TILEWIRE_DEVICE void init() const {
    finish_.init();
    ptx::mbarrier_init(memory_.begun(), FormPlan<Form>::kClusterCtas);
  }
  TILEWIRE_DEVICE void begin() const {
    const bool has_tables = make_tables();
    ptx::fence_async_shared();  // copies come where the counts were
    TableTeam::join();
    if (TableTeam::thread() == 0) tell_cluster(has_tables);
    if (has_tables) move_first_rows();
  }
  TILEWIRE_DEVICE void computed() const { finish_.arrive(); }
  TILEWIRE_DEVICE TileTrace trace(uint32_t group) const { return {space_, group, kComputeRole}; }
  TILEWIRE_DEVICE void run(uint32_t warp) const {
    const auto cta = static_cast<int32_t>(blockIdx.x), ctas = static_cast<int32_t>(gridDim.x);
    if (warp == 1) {
      finish_.publish(space_);
    } else if (warp == 3 && cta < kRankWarps) {
      run_rank_warp<Roles>(
          space_, finish_, [&] { run_sends(p_, space_); }, GatedDrain(p_.schedule), false, kCallRole);
    } else {
      help(warp == 2 ? cta : ctas + cta - kRankWarps, warp == 2 ? TracePlace::copies : TracePlace::send);
      finish_.arrive();
    }
  }
  // By any thread: whether there are tables, which it may read then. Waits for the end of begin() in all CTAs of the cluster.
  TILEWIRE_DEVICE bool sees_tables() const {
    while (!ptx::mbarrier_try_wait_cluster(memory_.begun(), 0)) {
    }
    if (ptx::load_shared(memory_.is_valid()) == 0) return false;
    const uint64_t* word = space_.word(p_.schedule.me(), p_.schedule.routed());
    while (ptx::load_acquire_sys(word) < space_.epoch()) {
    }
    return true;
  }

 private:
  // What the first thread of the team says, in all.
  TILEWIRE_DEVICE bool agree(bool is_true) const {
    TableTeam::join();
    if (TableTeam::thread() == 0) ptx::store_shared(memory_.answer(), is_true ? 1 : 0);
    TableTeam::join();
    return ptx::load_shared(memory_.answer()) != 0;
  }
  // Of so many CTAs of the rank: whether this one is the last to come here. By the team.
  TILEWIRE_DEVICE bool is_last(uint64_t* counter, int32_t ctas) const {
    TableTeam::join();
    return agree(TableTeam::thread() == 0 && is_last_part(counter, ctas));
  }
  // By the team: for a word of this rank. False: given up.
  TILEWIRE_DEVICE bool wait_for(const uint64_t* word, int32_t role) const {
    Waiter waiter(space_.view().limits, role, space_.epoch(), kTablePauseNs);
    return agree(TableTeam::thread() == 0 && waiter.wait(word, p_.schedule.routed(), space_.epoch()));
  }
  // Behind a call that was given up nothing is done: its epoch is that of this call, and words may have it already.
  TILEWIRE_DEVICE bool make_tables() const {
    if (!agree(ptx::load_relaxed_sys(space_.view().limits.abort_word) == 0)) return false;
    const TraceLane trace = space_.trace(TracePlace::first_group);
    const bool is_noting = TableTeam::thread() == 0 && trace.is_on();
    if (is_noting) note_begin(trace, kCountRole);
    const RouteCount count(p_, space_, reinterpret_cast<int32_t*>(stages_));
    const auto ctas = static_cast<int32_t>(gridDim.x);
    count.count();
    // The last one to have counted speaks for all: it makes the record, and the tables.
    const bool is_recorder = is_last(p_.scratch.counted, ctas);
    if (is_recorder && TableTeam::thread() == 0) publish_in_gpu(p_.scratch.counts_are_known, space_.epoch());
    if (!is_recorder && !wait_for(p_.scratch.counts_are_known, kCountRole)) return false;
    count.place(is_recorder);
    if (is_noting) trace.end();
    if (is_recorder) {
      if (is_noting) note_begin(trace, kRouteRole);
      route();
      if (is_noting) trace.end();
    } else if (is_last(p_.scratch.placed, ctas - 1)) {
      if (TableTeam::thread() == 0) publish_in_gpu(p_.scratch.places_are_known, space_.epoch());
    }
    return wait_for(space_.word(p_.schedule.me(), p_.schedule.routed()), kRouteRole);
  }
  TILEWIRE_DEVICE static void note_begin(const TraceLane& trace, int32_t role) {
    trace.wait({.role = static_cast<uint8_t>(role)});
    trace.begin();
  }
  TILEWIRE_DEVICE void route() const {
    RouteRole role(p_.schedule);
    RouteWork w;
    role.next(w);
    bool is_here = false;
    TableTeam::join();
    if (TableTeam::warp() == 0) {
      CallGate gate(space_, kRouteRole, kTablePauseNs);
      is_here = gate.pass(role, w);
    }
    if (!agree(is_here)) return;
    RouteTables(p_, space_).make();
    if (!wait_for(p_.scratch.places_are_known, kCountRole)) return;
    if (TableTeam::thread() == 0) space_.publish(role.publish(w, 0));
  }
  // CTAs of a cluster load for each other: either all of them have tiles, or none has; and none begins before the other
  // has left its shared memory. By one thread.
  TILEWIRE_DEVICE void tell_cluster(bool has_tables) const {
    constexpr uint32_t kCtas = FormPlan<Form>::kClusterCtas;
    const uint32_t value = has_tables ? 1 : 0;
    if (shared_.cta() == 0) ptx::store_shared(memory_.is_valid(), value);
    if constexpr (kCtas == 1) {
      ptx::mbarrier_arrive(memory_.begun());
    } else {
      if (shared_.cta() == 0) ptx::store_in_cluster(ptx::map_to_cta(memory_.is_valid(), 1), value);
      ptx::fence_cluster();
      for (uint32_t cta = 0; cta < kCtas; ++cta) {
        ptx::mbarrier_arrive_in_cluster(ptx::map_to_cta(memory_.begun(), cta));
      }
    }
  }

  // What comes before all tiles is moved by who computes them: these warps have nothing else to do until there are rows, and
  // more of them under way than any others. Own tokens for other nodes first, as the network is slow: all that wait for no
  // slot; then own rows for the node, of the first round.
  TILEWIRE_DEVICE void move_first_rows() const {
    const auto cta = static_cast<int32_t>(blockIdx.x), ctas = static_cast<int32_t>(gridDim.x);
    const int32_t warp = TableTeam::warp();
    constexpr int32_t kGroupWarps = kWarpgroupThreads / 32;
    const RowMover<kComputePieces> mover(
        p_, space_, warp < kGroupWarps ? TracePlace::first_group : TracePlace::second_group, warp % kGroupWarps == 0);
    const int32_t warps = kTableWarps * ctas, number = warp * ctas + cta;
    // Each has its rows one behind the other: none of them says anything before the tiles begin.
    const auto team_for = [&](int32_t rows) {
      return MoveTeam{number, warps, rows > warps ? (rows + warps - 1) / warps : 1, rows};
    };
    const Schedule& s = p_.schedule;
    const FirstRounds first(s);
    if (s.frame.has_network()) mover.pack(team_for(tokens_to_pack(s, first.packed)), {0, first.packed});
    mover.push(team_for(rows_to_push(s, first.pushed)), {0, first.pushed});
  }
  // What comes later: tokens that come in, and own rows of later rounds. Where there are both every other warp forwards; the
  // others pack, which waits for nothing, and push.
  TILEWIRE_DEVICE void help(int32_t helper, TracePlace place) const {
    const bool has_tables = sees_tables();
    const Schedule& s = p_.schedule;
    const int32_t helpers = helpers_of(static_cast<int32_t>(gridDim.x));
    const bool has_network = s.frame.has_network();
    const RowMover<kHelperPieces> mover(p_, space_, place, true);
    if (has_tables) {
      const FirstRounds first(s);
      const int32_t rounds = s.rounds_of(s.me());
      const bool has_both = has_network && first.pushed < rounds;
      if (has_network && (helper % 2 == 1 || !has_both)) {
        mover.forward(has_both ? MoveTeam{helper / 2, helpers / 2} : MoveTeam{helper, helpers});
      } else {
        const MoveTeam team = has_network ? MoveTeam{helper / 2, helpers - helpers / 2} : MoveTeam{helper, helpers};
        if (has_network) mover.pack(team, {first.packed, rounds});
        mover.push(team, {first.pushed, rounds});
      }
    }
    finish_results(p_, space_, {helper, helpers}, has_tables);
  }

  static constexpr uint32_t kTablePauseNs = 60;

  const FusedParameters& p_;
  const CallSpace& space_;
  const SharedTiles<Form>& shared_;
  BesideMemory<Form> memory_;
  uint8_t* stages_;
  CtaFinish finish_;
};

template <class Config>
__global__ void __launch_bounds__(kGemmThreads, 1) fused_kernel(const __grid_constant__ FusedParameters p) {
  using Form = typename Config::Form;
  extern __shared__ __align__(1024) uint8_t memory[];
  const CallSpace space(p.schedule.frame, p.call);
  const SharedTiles<Form> shared(memory);
  const Beside<Form> beside(p, space, shared, memory);
  const TileWalk role(p, space, SharedTiles<Form>::worker(), beside);
  run_gemm_roles<Config>(shared, ExpertMaps<Form>(p, space, BesideMemory<Form>{shared.spare()}.tables()), role,
                         CallGate(space, kComputeRole, kTilePauseNs), p.stages_per_tile, PlainEpilogue{}, beside);
}

}  // namespace tilewire::moe_dispatch

// A second op, for tests of sequences in which ops follow each other on one arena: every rank makes some slices and
// hands each of them to all ranks that end calls with it, inside the node by a copy, to another node by a command, both
// by one role. A tile for each slice waits for the slices of that number from all of them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "planning/plan_parts.h"
#include "testing/simulation_test_support.h"

namespace tilewire::hand_over {

// Words. The first two families are used by other ops too, for other things.
//   handed(p, c)  slice c of rank p lies here      written by p (or by the network for it), read by sum and drain
//   made(me, c)   own slice c is there             written by make, read by hand, sum and drain
//   summed(me, c) own tile c is there              written by sum, read by drain
inline constexpr int32_t kHanded = 0, kMade = 1, kSummed = 2, kFamilies = 3;
static_assert(kFamilies <= kWordFamilies, "a rank has fewer word families: raise kWordFamilies");
inline constexpr const char* kFamilyNames[kWordFamilies] = {"slice_handed", "slice_made", "slice_summed"};

struct Problem {
  int32_t slices = 0;
  int64_t slice_bytes = 0;  // a multiple of kWireUnitBytes, above 0
};

struct Choice {
  int32_t workers = 1;
  Cursors cursors{};
  // A fault: slices are handed over once those of the call before are summed, as if that call were one of this op.
  bool trusts_last_call = false;
};
inline void check_choice(const Choice&, const Problem&, const PlanContext&) {}

struct Schedule {
  CallFrame frame;
  Problem problem;
  bool trusts_last_call = false;

  uint32_t word(int32_t family, Rank source, int32_t slice) const {
    return frame.arena.flags.chunk(family, source, Chunk{slice});
  }
  int64_t slot(Rank source, int32_t slice) const {
    return frame.arena.data_offset() + (int64_t{source.value} * problem.slices + slice) * problem.slice_bytes;
  }
};

struct Tables {
  Schedule made;
  Tables(const Problem& problem, const Choice& choice, const PlanContext& context)
      : made{{context.topology, context.arena, context.me, 0}, problem, choice.trusts_last_call} {}
  Schedule schedule(Epoch epoch) const {
    Schedule s = made;
    s.frame.epoch = epoch;
    return s;
  }
};

struct MakeWork : WorkBase {
  int32_t slice = 0;
};
class MakeRole {
 public:
  using Work = MakeWork;
  explicit MakeRole(const Schedule& s) : s_(s) {}
  bool next(Work& w) {
    w = Work{};
    w.publishes = 1;
    w.slice = next_++;
    return w.slice < s_.problem.slices;
  }
  Need need(const Work&, int32_t) const { return {}; }
  Publish publish(const Work& w, int32_t) const { return {s_.frame.me, s_.word(kMade, s_.frame.me, w.slice)}; }

 private:
  Schedule s_;
  int32_t next_ = 0;
};

struct HandWork : WorkBase {
  int32_t slice = 0;
  Rank to;
  bool by_command = false;
  Command command;
};
class HandRole {
 public:
  using Work = HandWork;
  explicit HandRole(const Schedule& s) : s_(s) {}
  bool next(Work& w) {
    w = Work{};
    for (; slice_ < s_.problem.slices; ++slice_, members_ = {}) {
      if (members_.next(s_.frame, w.to)) {
        fill(w);
        return true;
      }
    }
    w.slice = s_.problem.slices;
    w.by_command = end_.next(s_.frame, w);
    return w.by_command;
  }
  Need need(const Work& w, int32_t i) const {
    return i == 0 ? Need{s_.word(kMade, s_.frame.me, w.slice), 0} : Need{s_.word(kSummed, s_.frame.me, w.slice), 1};
  }
  Publish publish(const Work& w, int32_t) const { return {w.to, s_.word(kHanded, s_.frame.me, w.slice)}; }

 private:
  void fill(Work& w) const {
    w.slice = slice_;
    w.needs = s_.trusts_last_call ? 2 : 1;
    w.by_command = s_.frame.is_remote(w.to);
    w.publishes = w.by_command ? 0 : 1;
    const auto unit = static_cast<uint64_t>(s_.slot(s_.frame.me, slice_) / kWireUnitBytes);
    w.command = {.kind = CommandKind::write,
                 .peer = w.to,
                 .word = s_.word(kHanded, s_.frame.me, slice_),
                 .units = static_cast<uint32_t>(s_.problem.slice_bytes / kWireUnitBytes),
                 .src_unit = unit,
                 .dst_unit = unit};
  }
  Schedule s_;
  int32_t slice_ = 0;
  MemberCursor members_;
  RingEnd end_;
};

// The tile of each slice, or with `is_drain` one piece of work that acquires every word.
struct SumWork : WorkBase {
  int64_t tile = 0;
};
class SumRole {
 public:
  using Work = SumWork;
  explicit SumRole(const Schedule& s) : s_(s) {}
  bool next(Work& w) {
    w = Work{};
    w.tile = next_++;
    w.needs = 2 * s_.frame.topology.ranks;
    w.publishes = 1;
    return w.tile < s_.problem.slices;
  }
  // Of each rank its record, then its slice; of those that send none, the own.
  Need need(const Work& w, int32_t i) const {
    const Rank p{i / 2};
    const bool sends = p != s_.frame.me && s_.frame.topology.ends_together(s_.frame.me, p);
    if (i % 2 == 0) return {s_.frame.arena.flags.begun(sends ? p : s_.frame.me), 0};
    const auto slice = static_cast<int32_t>(w.tile);
    return {sends ? s_.word(kHanded, p, slice) : s_.word(kMade, s_.frame.me, slice), 0};
  }
  Publish publish(const Work& w, int32_t) const {
    return {s_.frame.me, s_.word(kSummed, s_.frame.me, static_cast<int32_t>(w.tile))};
  }

 private:
  Schedule s_;
  int32_t next_ = 0;
};

struct DrainWork : WorkBase {};
class DrainRole {
 public:
  using Work = DrainWork;
  explicit DrainRole(const Schedule& s) : s_(s) {}
  bool next(Work& w) {
    w = Work{};
    w.needs = s_.problem.slices;
    return !std::exchange(is_over_, true);
  }
  Need need(const Work&, int32_t i) const { return {s_.word(kSummed, s_.frame.me, i), 0}; }
  Publish publish(const Work&, int32_t) const { return {}; }

 private:
  Schedule s_;
  bool is_over_ = false;
};

template <class Visit>
void for_each_role(const Schedule& s, const Cursors& cursors, Visit&& visit) {
  const int32_t ring = s.frame.has_network() ? static_cast<int32_t>(Ring::send) : -1;
  visit(AgentPlace{.role = "make"}, MakeRole(s));
  // Without slices it fills no ring, as ops do that send nothing.
  if (s.problem.slices > 0) {
    visit(AgentPlace{.role = "hand", .ring = ring, .has_cursors = true, .cursors = cursors}, HandRole(s));
  }
  visit(AgentPlace{.role = "sum", .has_cursors = true, .cursors = cursors}, SumRole(s));
  visit(AgentPlace{.role = "drain", .stage = kDrainStage}, DrainRole(s));
}

struct RankModel {
  using Problem = hand_over::Problem;
  using Choice = hand_over::Choice;
  using Tables = hand_over::Tables;
  using Schedule = hand_over::Schedule;
  static constexpr const char* const* kFamilyNames = hand_over::kFamilyNames;

  Schedule schedule;
  Cursors cursors;

  RankModel(const Schedule& s, const Choice& choice, const Problem&) : schedule(s), cursors(choice.cursors) {}

  void touch(const MakeWork& w, Touch& touch) const {
    touch.write(slice(schedule.frame.me, schedule.frame.me, w.slice), content(schedule.frame.me, w.slice));
  }
  void touch(const HandWork& w, Touch& touch) const {
    if (w.slice == schedule.problem.slices) return;  // call end
    const Rank me = schedule.frame.me;
    const MemoryRange from = slice(me, me, w.slice);
    if (w.by_command) {
      touch.need(from, content(me, w.slice));
    } else {
      touch.copy(from, slice(w.to, me, w.slice), content(me, w.slice));
    }
  }
  void touch(const SumWork& w, Touch& touch) const {
    touch.tile(w.tile, 1e6);
    MemberCursor members;
    for (Rank p; members.next(schedule.frame, p);) {
      touch.read(slice(schedule.frame.me, p, static_cast<int32_t>(w.tile)), content(p, static_cast<int32_t>(w.tile)));
    }
  }
  void touch(const DrainWork&, Touch&) const {}
  int64_t tiles() const { return schedule.problem.slices; }
  std::vector<UserInput> user_inputs() const { return {}; }

 private:
  static Content content(Rank source, int32_t slice) { return {kHanded, source, slice, 0}; }
  MemoryRange slice(Rank where, Rank source, int32_t slice) const {
    return {where, SimArea::half, schedule.slot(source, slice), schedule.problem.slice_bytes};
  }
};

inline void add_random_call(OpSimulation& simulation, Dice& dice) {
  const Problem problem{.slices = static_cast<int32_t>(dice.below(6)),
                        .slice_bytes = kWireUnitBytes * (1 + dice.below(8))};
  std::vector<Choice> choices;
  for (int32_t r = 0; r < simulation.ranks(); ++r) {
    choices.push_back({.cursors = {static_cast<int32_t>(dice.below(3)), static_cast<int32_t>(dice.below(3))}});
  }
  simulation.add_call<RankModel>(problem, choices);
}

}  // namespace tilewire::hand_over

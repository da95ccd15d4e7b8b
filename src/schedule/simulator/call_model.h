// Models of the roles that every call of every op has (schedule/call_roles.h).
#pragma once

#include "schedule/call_roles.h"
#include "schedule/simulator/sim_program.h"

namespace tilewire {

inline MemoryRange record_range(Rank where, Rank of) {
  return {where, SimArea::half, ArenaLayout::record_offset(of), kWireUnitBytes};
}
inline Content record_content(Rank of) { return {kRecordFamily, of, 0, 0}; }

struct BeginModel {
  using Role = BeginRole;
  CallFrame frame;

  Role start() const { return Role(frame); }
  const Command* command(const CallWork& w) const { return w.by_command ? &w.command : nullptr; }
  void touch(const CallWork& w, Touch& touch) const {
    const Content record = record_content(frame.me);
    if (w.peer == frame.me) {
      touch.write(record_range(frame.me, frame.me), record);
    } else if (w.by_command) {
      touch.read(record_range(frame.me, frame.me), record);
    } else {
      touch.copy(record_range(frame.me, frame.me), record_range(w.peer, frame.me), record);
    }
  }
};

struct DoneModel {
  using Role = DoneRole;
  CallFrame frame;

  Role start() const { return Role(frame); }
  const Command* command(const CallWork& w) const { return w.by_command ? &w.command : nullptr; }
  // Where the needs are, all records are compared.
  void touch(const CallWork& w, Touch& touch) const {
    if (w.needs == 0) return;
    MemberCursor members;
    for (Rank p; members.next(frame, p);) touch.read(record_range(frame.me, p), record_content(p));
  }
};

struct AwaitModel {
  using Role = AwaitRole;
  CallFrame frame;
  bool also_sent = false;

  Role start() const { return Role(frame, also_sent); }
};

// The control agent of a rank, which fills `ring` (-1 where there is no other node). The op adds its own roles in
// kOpStage and its drain role in kDrainStage.
inline void add_call_roles(SimCall& call, const CallFrame& frame, int32_t ring, bool also_sent = false) {
  call.add(frame.me, {.role = "begin", .stage = kOpStage, .ring = ring}, BeginModel{frame});
  call.add(frame.me, {.role = "done", .stage = kDoneStage, .ring = ring}, DoneModel{frame});
  call.add(frame.me, {.role = "await", .stage = kAwaitStage, .ring = ring}, AwaitModel{frame, also_sent});
}

}  // namespace tilewire

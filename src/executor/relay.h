// The relay role of a CPU rank (see schedule/relay_role.h): publishes arrivals that the proxy put into the arrival
// ring. CPU ranks can do without it, since their proxy can write the words itself; with the option arrivals=relay they
// run it as GPU ranks do.
#pragma once

#include <atomic>

#include "executor/role_context.h"
#include "executor/role_team.h"
#include "transport/arrival_sink.h"

namespace tilewire {

// The part of a session: the ring, and the drain's place in it, which lasts from call to call.
class RelayRing {
 public:
  explicit RelayRing(CommandRing ring) : ring_(std::move(ring)), drain_(ring_.drain_side()) {}

  ArrivalSink& sink() { return ring_.sink(); }
  ArrivalDrain& drain() { return drain_; }
  uint64_t next_slot = 0;

 private:
  ArrivalRing ring_;
  ArrivalDrain drain_;
};

// Runs the role on a thread of its own from construction to destruction, which is the length of a call.
class RelayThread {
 public:
  // Does nothing when `ring` is nullptr.
  RelayThread(Session& session, const CallSite& site, RelayRing* ring);
  ~RelayThread();
  RelayThread(const RelayThread&) = delete;
  RelayThread& operator=(const RelayThread&) = delete;

 private:
  void run(const CallSite& site);
  void tell(const char* what) noexcept;

  Session& session_;
  RelayRing* ring_;
  std::atomic<bool> must_stop_{false};
};

}  // namespace tilewire

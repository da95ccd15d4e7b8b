// Recording of what each role did when. Off by default: a role holds a TraceRing pointer, and where that is null
// recording costs one comparison.
//
// All ranks of a host share one clock (trace_clock_ns). Ranks of different hosts do not: their clocks start at their
// boots, so a timeline over several hosts needs an offset for each host, added to t_begin_ns and t_end_ns before it is
// written.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "schedule/trace_event.h"

namespace tilewire {

// CLOCK_MONOTONIC in nanoseconds.
int64_t trace_clock_ns();

// The events of one role thread, in the order in which they were recorded. One writer. It never overwrites: when the
// trace's budget is used up, further events are counted and dropped.
class TraceRing {
 public:
  // Use TraceLog::ring. `role` is a string literal.
  TraceRing(Rank rank, const char* role, int32_t worker, std::atomic<int64_t>& budget);

  // Fills in rank, role and worker of a copy of `event` and keeps it.
  void add(TraceEvent event);

  // The following only while the writer is not recording, with its events visible (after RoleTeam::join).
  void append_to(std::vector<TraceEvent>& events) const;
  void clear();
  int64_t events() const { return count_; }
  int64_t dropped() const { return dropped_; }

 private:
  static constexpr int64_t kBlockEvents = 256;

  Rank rank_;
  const char* role_;
  int32_t worker_;
  std::atomic<int64_t>& budget_;                 // events that the log still has room for, shared by its rings
  std::vector<std::vector<TraceEvent>> blocks_;  // so that no event is ever moved
  int64_t count_ = 0;
  int64_t dropped_ = 0;
};

// What a rank has recorded.
struct TraceRecord {
  std::vector<TraceEvent> events;
  int64_t dropped = 0;  // events that had no room
};

// How many events there were.
struct TraceCounts {
  int64_t events = 0;
  int64_t dropped = 0;  // had no room, beside those
};

// The rings of one rank, which share a budget of events (option trace_events). Memory is taken as events come.
class TraceLog {
 public:
  // A capacity of 0 means off: ring() gives null.
  TraceLog(Rank rank, int64_t capacity_events);

  // The ring of one role thread, made at the first call with that role and worker; null when the trace is off.
  // Thread-safe; the pointer stays good for the life of the trace. `role` must be a string literal.
  TraceRing* ring(const char* role, int32_t worker);

  // All events so far, by the beginning of their waits. Only while no role runs, as counts() and clear().
  std::vector<TraceEvent> collect() const;
  TraceCounts counts() const;  // copies nothing
  // Of events that had no room where they were first noted. By the thread that collects.
  void add_dropped(int64_t events) { dropped_elsewhere_ += events; }
  // Forgets all events and gives their room back.
  void clear();

 private:
  Rank rank_;
  int64_t capacity_events_;
  std::atomic<int64_t> budget_;
  int64_t dropped_elsewhere_ = 0;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int32_t>, std::unique_ptr<TraceRing>> rings_;
};

// What a file says of its events.
struct TraceAbout {
  int64_t dropped = 0;     // had no room
  std::string run;         // the communicator's name, so that files of different runs are not taken for one
  int32_t world_size = 0;  // of it; 0: not said
};

// The events as text in the Chrome trace format, which Perfetto reads: one process a rank, one track a role thread,
// times in microseconds from the first wait. A wait is a slice of its own inside the work that waited. `about` stands
// in otherData.
std::string trace_json(std::span<const TraceEvent> events, const TraceAbout& about = {});

// Writes trace_json to `path`, first to a new file beside it which then takes its name: no one ever sees a part of it.
// Throws Error(resource) naming path and errno; then nothing is left behind and a previous file stays as it was.
void write_trace(const std::string& path, std::span<const TraceEvent> events, const TraceAbout& about = {});

}  // namespace tilewire

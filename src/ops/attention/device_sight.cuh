// What rows see, as a kernel looks at it: in device memory, the tables of a shape, or of calls whose positions or documents are
// their own. Host code.
//
// Memory for so many calls is there from the start, where calls have something of their own: nothing is allocated while kernels
// wait for each other. Tables are copied in stream order in front of the call that has them; the next calls of the same
// problem find them. Those that a graph uses stay for ever, so not all rooms are for graphs.
#pragma once

#include "ops/attention/key_steps.h"
#include "ops/attention/schedule_tables.h"

#include <tilewire/call.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tilewire::attention {

class DeviceSight {
 public:
  static constexpr size_t kRooms = 8, kRoomsOfGraphs = 6;  // of others the two latest are there (python: gpu/rank.py)

  // For calls of the shape of `tables`, which must live; `step_rows` of the kernel. Where the problem knows all positions, its
  // own tables are there for ever. `has_rooms`: for calls of other problems too.
  DeviceSight(const Problem& problem, const ScheduleTables& tables, int32_t step_rows, bool has_rooms);
  ~DeviceSight();
  DeviceSight(const DeviceSight&) = delete;
  DeviceSight& operator=(const DeviceSight&) = delete;

  // Sees to it that the call's tables are there when what is in the stream now has run. Throws Error(invalid_argument)
  // where the stream is captured, and they are not there or too many graphs have some.
  void bring(const Problem& problem, cudaStream_t stream);
  // Behind the kernel of the call that was brought: where it was captured, its tables stay.
  void hold_captured();
  // Of a problem that was brought: makes both point to the tables in device memory.
  void point(const Problem& problem, Schedule& schedule, KeySteps& steps) const;
  // What its calls move.
  const CallReport& report(const Problem& problem) const;
  int64_t bytes() const { return static_cast<int64_t>(rooms_.size() * room_bytes_); }

 private:
  struct Room {
    std::optional<Problem> of{};
    bool is_captured = false;
    uint64_t last_used = 0;
    CallReport report{};
    std::byte* device = nullptr;
    std::byte* staging = nullptr;  // pinned
    cudaEvent_t copied = nullptr;  // from there
  };

  void allocate();
  void fill(Room& room, const Problem& problem, const Schedule& schedule);
  Room& next_room();
  const Room& room_of(const Problem& problem) const;

  const ScheduleTables& tables_;
  int32_t step_rows_;
  std::vector<size_t> offsets_;  // of each table in a room
  size_t room_bytes_ = 0;
  std::byte* device_ = nullptr;
  std::byte* staging_ = nullptr;
  std::vector<Room> rooms_;  // the first one is of the problem that all is made for, where that knows all positions
  uint64_t uses_ = 0;
  Room* captured_ = nullptr;  // of the call at hand
  SightTables sight_;         // of the call at hand
};

}  // namespace tilewire::attention

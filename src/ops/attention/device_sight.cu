#include "ops/attention/device_sight.cuh"

#include "device/cuda_check.cuh"
#include "operands/matrix_checks.h"
#include "ops/attention/attention.h"

#include <tilewire/error.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tilewire::attention {
namespace {

constexpr size_t kAlignment = 128;

// All tables that say what rows see, with their numbers of entries: those are the same for all calls of a shape. `sizes` is
// a schedule in host memory.
template <class Visit>
void for_each_table(const Schedule& sizes, size_t step_count, Schedule& s, KeySteps& k, const Visit& visit) {
  const auto ranks = static_cast<size_t>(sizes.ranks()), tiles = static_cast<size_t>(sizes.tiles);
  const auto blocks = static_cast<size_t>(sizes.blocks.total_chunks());
  visit(s.wanted, ranks * blocks);
  visit(s.block_keys, blocks);
  visit(s.tile_spans, tiles);
  visit(s.tile_blocks, tiles * ranks);
  visit(s.tile_order, tiles);
  visit(s.query_spans, static_cast<size_t>(sizes.rows));
  visit(s.key_positions, static_cast<size_t>(sizes.blocks.row_begin[ranks]));
  visit(k.steps, step_count);
  visit(k.step_begin, ranks + 1);
  visit(k.of_tiles, tiles * ranks);
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

DeviceSight::DeviceSight(const Problem& problem, const ScheduleTables& tables, int32_t step_rows, bool has_rooms)
    : tables_(tables), step_rows_(step_rows) {
  const Schedule sizes = tables.schedule(0);
  Schedule s = sizes;
  KeySteps k;
  for_each_table(sizes, KeyStepTable::count(sizes, step_rows), s, k, [&](const auto*& table, size_t count) {
    offsets_.push_back(room_bytes_);
    room_bytes_ += (count * sizeof(*table) + kAlignment - 1) / kAlignment * kAlignment;
  });
  rooms_.resize(has_rooms ? kRooms + 1 : 1);
  allocate();
  if (!problem.knows_positions()) return;
  fill(rooms_[0], problem, sizes);
  check_cuda(cudaMemcpy(rooms_[0].device, rooms_[0].staging, room_bytes_, cudaMemcpyHostToDevice),
             "copying the tables of a call");
}

DeviceSight::~DeviceSight() {
  for (const Room& room : rooms_) {
    if (room.copied != nullptr) cudaEventDestroy(room.copied);
  }
  cudaFree(device_);
  cudaFreeHost(staging_);
}

void DeviceSight::allocate() {
  const size_t bytes = rooms_.size() * room_bytes_;
  void *device = nullptr, *staging = nullptr;
  check_cuda(cudaMalloc(&device, bytes), "allocating the tables of calls");
  device_ = static_cast<std::byte*>(device);
  check_cuda(cudaHostAlloc(&staging, bytes, cudaHostAllocDefault), "allocating the tables of calls");
  staging_ = static_cast<std::byte*>(staging);
  for (size_t i = 0; i < rooms_.size(); ++i) {
    rooms_[i].device = device_ + i * room_bytes_;
    rooms_[i].staging = staging_ + i * room_bytes_;
    check_cuda(cudaEventCreateWithFlags(&rooms_[i].copied, cudaEventDisableTiming), "making an event");
  }
}

// The staging may be written.
void DeviceSight::fill(Room& room, const Problem& problem, const Schedule& schedule) {
  const KeyStepTable steps(schedule, step_rows_);
  Schedule s = schedule;
  KeySteps k = steps.view();
  size_t table_number = 0;
  for_each_table(schedule, steps.steps().size(), s, k, [&](const auto*& table, size_t count) {
    if (count > 0) std::memcpy(room.staging + offsets_[table_number], table, count * sizeof(*table));
    ++table_number;
  });
  room.report = Op::report(schedule);
  room.of = problem;
}

void DeviceSight::bring(const Problem& problem, cudaStream_t stream) {
  const bool is_captured = is_capturing(stream);
  captured_ = nullptr;
  const auto found = std::find_if(rooms_.begin(), rooms_.end(), [&](const Room& r) { return r.of == problem; });
  if (found != rooms_.end()) {
    found->last_used = ++uses_;
    if (!is_captured || found->is_captured || found == rooms_.begin()) return;
    const auto held = std::count_if(rooms_.begin(), rooms_.end(), [](const Room& r) { return r.is_captured; });
    if (held >= static_cast<ptrdiff_t>(kRoomsOfGraphs)) {
      refuse_argument(kCallName, "graphs have too many calls of this shape with documents of their own",
                      std::to_string(held) + " others, " + problem.text(), std::to_string(kRoomsOfGraphs),
                      "make this call behind the graph");
    }
    captured_ = &*found;
    return;
  }
  if (is_captured) {
    refuse_argument(kCallName, "a call is captured in a graph whose documents no call had before", problem.text(),
                    "what a first call does cannot be part of a graph",
                    "make one such call on all ranks before the capture");
  }
  Room& room = next_room();
  room.last_used = ++uses_;
  check_cuda(cudaEventSynchronize(room.copied), "waiting for the tables of an earlier call");
  room.of.reset();
  fill(room, problem, tables_.schedule(problem, sight_));
  check_cuda(cudaMemcpyAsync(room.device, room.staging, room_bytes_, cudaMemcpyHostToDevice, stream),
             "copying the tables of a call");
  check_cuda(cudaEventRecord(room.copied, stream), "noting the tables of a call");
}

void DeviceSight::hold_captured() {
  if (captured_ != nullptr) captured_->is_captured = true;
}

// The one that no call has had for the longest time, of those that no graph has.
DeviceSight::Room& DeviceSight::next_room() {
  Room* next = nullptr;
  for (size_t i = 1; i < rooms_.size(); ++i) {
    if (rooms_[i].is_captured) continue;
    if (next == nullptr || rooms_[i].last_used < next->last_used) next = &rooms_[i];
  }
  if (next != nullptr) return *next;
  throw Error(ErrorKind::internal,
              {.what = "a kernel without room for other documents is given some", .where = kCallName});
}

const DeviceSight::Room& DeviceSight::room_of(const Problem& problem) const {
  const auto found = std::find_if(rooms_.begin(), rooms_.end(), [&](const Room& r) { return r.of == problem; });
  if (found != rooms_.end()) return *found;
  throw Error(ErrorKind::internal,
              {.what = "the tables of a call are not there", .where = kCallName, .values = problem.text()});
}

void DeviceSight::point(const Problem& problem, Schedule& schedule, KeySteps& steps) const {
  const Room& room = room_of(problem);
  const Schedule sizes = tables_.schedule(0);
  const size_t step_count = KeyStepTable::count(sizes, step_rows_);
  size_t table_number = 0;
  for_each_table(sizes, step_count, schedule, steps, [&](auto*& table, size_t) {
    table = reinterpret_cast<std::remove_reference_t<decltype(table)>>(room.device + offsets_[table_number++]);
  });
  steps.step_rows = step_rows_;
  steps.block_steps = KeyStepTable::block_steps(sizes, step_rows_);
}

const CallReport& DeviceSight::report(const Problem& problem) const { return room_of(problem).report; }

}  // namespace tilewire::attention

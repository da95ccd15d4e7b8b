// For tests that the iterators of an op do on a GPU what they do on the host: one thread walks every role of a rank and
// hashes what each piece of work needs, publishes and commands. An op's test writes its schedules and which of their
// tables go to the device; where there is no GPU, that it compiles is the test.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "schedule/call_roles.h"
#include "schedule/role.h"
#include "schedule/topology.h"
#include "schedule/wire.h"

namespace tilewire {

struct WalkHash {
  uint64_t value = 0xcbf29ce484222325u;
  TILEWIRE_HD constexpr void add(uint64_t v) { value = (value ^ v) * 0x100000001b3u; }
};

// What the op says of the single rows of a piece of work is hashed by its hash_rows(schedule, work, hash), where it has one.
template <class Schedule, class Role>
TILEWIRE_HD constexpr void walk_role(const Schedule& s, Role role, WalkHash& hash) {
  typename Role::Work w;
  while (role.next(w)) {
    for (int32_t i = 0; i < w.needs; ++i) {
      hash.add(role.need(w, i).word);
      hash.add(static_cast<uint64_t>(role.need(w, i).lag));
    }
    for (int32_t i = 0; i < w.publishes; ++i) {
      hash.add(static_cast<uint64_t>(role.publish(w, i).to.value));
      hash.add(role.publish(w, i).word);
    }
    if constexpr (requires { w.command; }) {
      const PackedCommand packed = pack(w.command);
      hash.add(packed.first);
      hash.add(packed.second);
    }
    if constexpr (requires { w.tile; }) hash.add(static_cast<uint64_t>(w.tile));
    if constexpr (requires { w.row_block; }) hash.add(static_cast<uint64_t>(w.row_block));
    if constexpr (requires { hash_rows(s, w, hash); }) hash_rows(s, w, hash);
  }
}

template <class Schedule>
struct Walker {
  const Schedule* schedule;
  WalkHash* hash;
  template <class Role>
  TILEWIRE_HD constexpr void operator()(const AgentPlace& place, const Role& role) const {
    hash->add(static_cast<uint64_t>(place.worker * 100 + place.stage * 10 + place.ring + 1));
    walk_role(*schedule, role, *hash);
  }
};

// The whole call of a rank, by the op's own list of roles.
template <class Schedule>
TILEWIRE_HD constexpr uint64_t walk_call(const Schedule& s) {
  WalkHash hash;
  walk_role(s, BeginRole(s.frame), hash);
  for_each_role(s, Cursors{}, Walker<Schedule>{&s, &hash});
  walk_role(s, DoneRole(s.frame), hash);
  walk_role(s, AwaitRole(s.frame, true), hash);
  return hash.value;
}

template <class Schedule>
__global__ void walk_kernel(const __grid_constant__ Schedule s, uint64_t* out) {
  *out = walk_call(s);
}

// A table of the host, copied; nullptr when that fails. Never freed: for a test.
template <class T>
const T* to_device(const T* host, size_t count) {
  T* device = nullptr;
  if (cudaMalloc(&device, count * sizeof(T)) != cudaSuccess) return nullptr;
  cudaMemcpy(device, host, count * sizeof(T), cudaMemcpyHostToDevice);
  return device;
}

inline Topology to_device(Topology t) {
  const auto ranks = static_cast<size_t>(t.ranks);
  t.node_of_rank = to_device(t.node_of_rank, ranks);
  t.local_of_rank = to_device(t.local_of_rank, ranks);
  t.node_first = to_device(t.node_first, static_cast<size_t>(t.nodes) + 1);
  t.rank_in_node = to_device(t.rank_in_node, ranks);
  return t;
}

// "" when the GPU walks as the host does, else what each saw. `on_device` is `s` with its tables on the GPU.
template <class Schedule>
std::string walk_difference(const Schedule& s, const Schedule& on_device) {
  uint64_t* out = nullptr;
  cudaMalloc(&out, sizeof(uint64_t));
  walk_kernel<<<1, 1>>>(on_device, out);
  uint64_t seen = 0;
  const bool is_copied = cudaMemcpy(&seen, out, sizeof(seen), cudaMemcpyDeviceToHost) == cudaSuccess;
  cudaFree(out);
  if (is_copied && seen == walk_call(s)) return {};
  return "rank " + std::to_string(s.frame.me.value) + ": the GPU walked " + std::to_string(seen) + ", the host " +
         std::to_string(walk_call(s)) + " (" + cudaGetErrorString(cudaGetLastError()) + ")";
}

}  // namespace tilewire

// The iterators of AllGather+GEMM compiled for the GPU. Where there is a GPU, one thread walks every role of every rank
// and must see what the host sees; elsewhere that it compiles is the test.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "ops/ag_gemm/plan.h"
#include "ops/ag_gemm/schedule.h"
#include "schedule/topology_tables.h"

namespace tilewire::ag_gemm {
namespace {

constexpr int kSkipped = 77;

struct WalkHash {
  uint64_t value = 0xcbf29ce484222325u;
  TILEWIRE_HD constexpr void add(uint64_t v) { value = (value ^ v) * 0x100000001b3u; }
};

template <class Role>
TILEWIRE_HD constexpr void walk(Role role, WalkHash& hash) {
  typename Role::Work w;
  while (role.next(w)) {
    for (int32_t i = 0; i < w.needs; ++i) hash.add(role.need(w, i).word);
    for (int32_t i = 0; i < w.publishes; ++i) {
      hash.add(static_cast<uint64_t>(role.publish(w, i).to.value));
      hash.add(role.publish(w, i).word);
    }
    if constexpr (requires { w.command; }) {
      const PackedCommand packed = pack(w.command);
      hash.add(packed.first);
      hash.add(packed.second);
    }
    if constexpr (requires { w.tile; }) hash.add(static_cast<uint64_t>(w.tile * 1000 + w.row_block));
  }
}

struct Walker {
  WalkHash* hash;
  template <class Role>
  TILEWIRE_HD constexpr void operator()(const AgentPlace& place, const Role& role) const {
    hash->add(static_cast<uint64_t>(place.worker * 100 + place.stage * 10 + place.ring + 1));
    walk(role, *hash);
  }
};

TILEWIRE_HD constexpr uint64_t walk_all(const Schedule& s) {
  WalkHash hash;
  walk(BeginRole(s.frame), hash);
  for_each_role(s, Cursors{}, Walker{&hash});
  walk(DoneRole(s.frame), hash);
  walk(AwaitRole(s.frame, true), hash);
  return hash.value;
}

__global__ void walk_kernel(const __grid_constant__ Schedule s, uint64_t* out) { *out = walk_all(s); }

template <class T>
const T* to_device(const T* host, size_t count) {
  T* device = nullptr;
  if (cudaMalloc(&device, count * sizeof(T)) != cudaSuccess) return nullptr;
  cudaMemcpy(device, host, count * sizeof(T), cudaMemcpyHostToDevice);
  return device;
}

Schedule on_device(Schedule s) {
  Topology& t = s.frame.topology;
  const auto ranks = static_cast<size_t>(t.ranks);
  t.node_of_rank = to_device(t.node_of_rank, ranks);
  t.local_of_rank = to_device(t.local_of_rank, ranks);
  t.node_first = to_device(t.node_first, static_cast<size_t>(t.nodes) + 1);
  t.rank_in_node = to_device(t.rank_in_node, ranks);
  s.chunks.row_begin = to_device(s.chunks.row_begin, ranks + 1);
  s.chunks.chunk_begin = to_device(s.chunks.chunk_begin, ranks + 1);
  s.row_order = to_device(s.row_order, static_cast<size_t>(s.grid.row_blocks));
  return s;
}

int run() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU: compiled only");
    return kSkipped;
  }
  const TopologyTables topology = TopologyTables::from_layout({3, 2});
  const Problem problem{.rows = {40, 0, 33, 7, 64}, .k = 40, .dtype = DataType::bf16, .cols = {50, 20}};
  const PlanChoice choice{
      .chunk_rows = 8, .tile_rows = 16, .tile_cols = 16, .raster_rows = 2, .workers = 3, .cursors = {}};
  uint64_t* out = nullptr;
  cudaMalloc(&out, sizeof(uint64_t));
  for (int32_t r = 0; r < 5; ++r) {
    const PlanContext context{
        .topology = topology.view(),
        .me = Rank{r},
        .arena = {.flags = {.ranks = 5, .max_chunks = 64}, .half_stride_bytes = 1 << 20, .user_stride_bytes = 1 << 20},
        .machine = {}};
    const ScheduleTables tables(problem, choice, context);
    const Schedule s = tables.schedule(9);
    walk_kernel<<<1, 1>>>(on_device(s), out);
    uint64_t seen = 0;
    if (cudaMemcpy(&seen, out, sizeof(seen), cudaMemcpyDeviceToHost) != cudaSuccess || seen != walk_all(s)) {
      std::printf("rank %d: the GPU walked %llx, the host %llx (%s)\n", r, static_cast<unsigned long long>(seen),
                  static_cast<unsigned long long>(walk_all(s)), cudaGetErrorString(cudaGetLastError()));
      return 1;
    }
  }
  std::puts("the GPU walks as the host does");
  return 0;
}

}  // namespace
}  // namespace tilewire::ag_gemm

int main() { return tilewire::ag_gemm::run(); }

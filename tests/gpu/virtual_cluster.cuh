// Nodes of several ranks in ONE process on ONE GPU, for the fused kernels: each rank has an arena of its own (plain
// device memory, so that peers of the node are plain pointers), a stream, and a share of the SMs. Between nodes there is
// all that a real cluster has: command rings, a proxy a rank, the emulated transport; the wire kernel moves its data.
// What it cannot show: links between GPUs, their order and their speed; and peers compete for one memory.
#pragma once

#include "device_buffer.cuh"
#include "pinned.cuh"

#include "device/comm/device_rank.h"
#include "device/wire/wire.cuh"
#include "planning/plan_parts.h"
#include "schedule/topology_tables.h"
#include "transport/arrival_sink.h"
#include "transport/emulated/emulated_transport.h"
#include "transport/emulated/local_reach.h"
#include "transport/emulated/wire_writer.h"
#include "transport/proxy.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tilewire {

// Before the first call of CUDA: kernels will wait for each other, so nothing may be loaded, and no stream may share a
// queue, while they run.
inline void prepare_for_waiting_kernels() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

// How many GPUs the ranks of clusters are spread over. With several the memory of each is mapped by all.
inline int32_t gpus_of_clusters = 1;

inline void spread_over_all_gpus() {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "counting GPUs");
  for (int from = 0; from < count; ++from) {
    check_cuda(cudaSetDevice(from), "choosing a GPU");
    for (int to = 0; to < count; ++to) {
      if (to != from) check_cuda(cudaDeviceEnablePeerAccess(to, 0), "reaching another GPU");
    }
  }
  check_cuda(cudaSetDevice(0), "choosing a GPU");
  gpus_of_clusters = count;
}

// What is left of the words of a program when a leading --gpus has been taken, which spreads clusters over all GPUs.
inline std::string words_without_gpus(int count, char** words) {
  const bool has_gpus = count > 1 && std::string(words[1]) == "--gpus";
  if (has_gpus) spread_over_all_gpus();
  const int next = has_gpus ? 2 : 1;
  return count > next ? words[next] : "";
}

struct VirtualClusterSize {
  std::vector<int32_t> widths;  // ranks of each node
  int32_t max_chunks = 64;
  int64_t half_bytes = 0;  // of gathered data
  Epoch first = 1;         // the next call: all flags are at the one before
  EmulatedOptions network{};
};

class VirtualCluster {
 public:
  explicit VirtualCluster(const VirtualClusterSize& size)
      : first_(size.first),
        network_bytes_per_s_(size.network.bandwidth_bytes_per_s),
        topology_(TopologyTables::from_layout(size.widths)) {
    const int32_t ranks = topology_.view().ranks;
    layout_.flags = {.ranks = ranks, .max_chunks = size.max_chunks};
    layout_.half_stride_bytes = ArenaLayout::round_page(layout_.data_offset() + size.half_bytes);
    for (int32_t r = 0; r < ranks; ++r) {
      use(r);
      ranks_.push_back(std::make_unique<PerRank>(layout_, size.first));
    }
    use(0);
    for (const auto& rank : ranks_) bases_.push_back(rank->arena.data());
    if (topology_.view().nodes > 1) make_network(size.network);
    check_cuda(cudaDeviceSynchronize(), "making a cluster");
  }
  VirtualCluster(const VirtualCluster&) = delete;
  VirtualCluster& operator=(const VirtualCluster&) = delete;
  ~VirtualCluster() {
    for (const auto& rank : ranks_) {
      if (rank->proxy) rank->proxy->stop();
      if (rank->transport) rank->transport->close();
    }
  }

  int32_t ranks() const { return topology_.view().ranks; }
  // Makes the GPU of a rank the current one: nodes lie on GPUs in turn, or the ranks of one node do.
  void use(int32_t r) const {
    const Topology t = topology_.view();
    const int32_t gpu = t.nodes > 1 ? t.node(Rank{r}).value % gpus_of_clusters : r * gpus_of_clusters / t.ranks;
    check_cuda(cudaSetDevice(gpu), "choosing a GPU");
  }
  Topology topology() const { return topology_.view(); }
  const ArenaLayout& layout() const { return layout_; }
  cudaStream_t stream(int32_t r) const { return at(r).stream; }
  const FaultRecord& fault(int32_t r) const { return *at(r).fault(); }
  PlanContext context(int32_t r) const {
    return {.topology = topology_.view(), .me = Rank{r}, .arena = layout_, .machine = machine()};
  }
  DeviceRank rank(int32_t r, uint64_t timeout_ns) const {
    const PerRank& own = at(r);
    DeviceRank rank{.arenas = bases_, .state = own.state.data(), .fault = own.fault(), .timeout_ns = timeout_ns};
    for (int32_t p = 0; p < ranks(); ++p) {
      if (!topology().same_node(Rank{r}, Rank{p})) rank.arenas[static_cast<size_t>(p)] = nullptr;
    }
    rank.control_page = own.control_page();
    if (own.proxy == nullptr) return rank;
    for (int32_t i = 0; i < kRings; ++i) rank.rings[i] = own.ring(i);
    if (own.proxy->arrival().strategy == ArrivalStrategy::counted) rank.arrivals = own.ring(kRings);
    return rank;
  }
  // An H200, and the emulated network's rate where it has a limit.
  Machine machine() const {
    Machine machine = gpu_machine((ranks() + gpus_of_clusters - 1) / gpus_of_clusters);
    if (network_bytes_per_s_ > 0) machine.network_bytes_per_s = network_bytes_per_s_;
    return machine;
  }
  // As the host does when it learns of a fault elsewhere.
  void abort_from_host(int32_t r) const {
    std::atomic_ref(*reinterpret_cast<uint64_t*>(at(r).control_page() + ControlPage::kAbort)).store(1);
  }
  ProxyTotals totals(int32_t r) const { return at(r).proxy->totals(); }

  // NaN wherever data of call `epoch` will lie. Between calls.
  void poison_half(Epoch epoch) {
    for (int32_t r = 0; r < ranks(); ++r) {
      use(r);
      check_cuda(cudaMemset(bases_[static_cast<size_t>(r)] + layout_.half_offset(epoch) + layout_.data_offset(), 0xff,
                            static_cast<size_t>(layout_.half_stride_bytes - layout_.data_offset())),
                 "poisoning a half");
      check_cuda(cudaDeviceSynchronize(), "poisoning a half");
    }
    use(0);
  }
  // Nodes are joined between the two. No memory may be made or freed meanwhile.
  void start_wire() const {
    use(0);
    if (wire_) wire_->start();
  }
  void stop_wire() const {
    if (wire_) wire_->stop();
  }
  // Until all launched calls have ended; the wire runs on.
  void wait() const {
    for (const auto& rank : ranks_) check_cuda(cudaStreamSynchronize(rank->stream), "running the ranks");
  }

 private:
  static constexpr uint32_t kRingEntries = 64;  // few, so that they fill up
  static constexpr size_t kRingBytes = RingMemory::bytes(kRingEntries), kWireBytes = WireRing::bytes(kRingEntries);

  struct PerRank {
    DeviceBuffer<std::byte> arena;
    DeviceBuffer<DeviceRankState> state{1};
    Pinned pinned{ControlPage::kBytes + sizeof(FaultRecord)};
    Pinned rings{(kRings + 1) * kRingBytes};
    Pinned wire{kWireBytes};
    cudaStream_t stream = nullptr;
    std::unique_ptr<Transport> transport;
    std::unique_ptr<RingSink> arrivals;
    std::unique_ptr<Proxy> proxy;

    PerRank(const ArenaLayout& layout, Epoch first) : arena(layout.total_bytes()) {
      arena.fill_bytes(0);
      const std::vector<uint64_t> words(static_cast<size_t>(layout.flags.words()), first - 1);
      check_cuda(cudaMemcpy(arena.data() + ControlPage::kBytes, words.data(), words.size() * sizeof(uint64_t),
                            cudaMemcpyHostToDevice),
                 "setting flags");
      const DeviceRankState fresh{.epoch = first - 1};
      check_cuda(cudaMemcpy(state.data(), &fresh, sizeof(fresh), cudaMemcpyHostToDevice),
                 "setting the state of a rank");
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
      *fault() = FaultRecord{};
    }
    ~PerRank() { cudaStreamDestroy(stream); }

    std::byte* control_page() const { return static_cast<std::byte*>(pinned.data()); }
    FaultRecord* fault() const { return reinterpret_cast<FaultRecord*>(control_page() + ControlPage::kBytes); }
    RingMemory ring(int32_t i) const {
      return RingMemory::at(static_cast<std::byte*>(rings.data()) + static_cast<size_t>(i) * kRingBytes, kRingEntries);
    }
    WireRing wire_ring() const { return WireRing::at(wire.data(), kRingEntries); }
  };

  const PerRank& at(int32_t r) const { return *ranks_[static_cast<size_t>(r)]; }

  std::vector<Rank> remote_members(Rank of) const {
    std::vector<Rank> members;
    for (int32_t r = 0; r < ranks(); ++r) {
      if (!topology().same_node(of, Rank{r}) && topology().ends_together(of, Rank{r})) members.emplace_back(r);
    }
    return members;
  }

  void make_network(const EmulatedOptions& options) {
    std::vector<std::vector<std::byte>> addresses;
    std::vector<WireRing> wires;
    for (int32_t r = 0; r < ranks(); ++r) {
      PerRank& rank = *ranks_[static_cast<size_t>(r)];
      wires.push_back(rank.wire_ring());
      TransportContext context{.rank = Rank{r},
                               .ranks = ranks(),
                               .peers = remote_members(Rank{r}),
                               .arena = rank.arena.data(),
                               .arena_bytes = static_cast<uint64_t>(layout_.total_bytes())};
      LocalReach reach{.arena_bases = bases_};
      reach.make_writer = [ring = rank.wire_ring()] { return std::make_unique<WireWriter>(ring); };
      context.local_reach = std::make_shared<LocalReach>(std::move(reach));
      rank.transport = make_emulated_transport(context, options);
      rank.transport->register_arena(0, context.arena_bytes);
      addresses.push_back(rank.transport->address());
    }
    wire_ = std::make_unique<Wire>(bases_, wires);
    for (int32_t r = 0; r < ranks(); ++r) start_proxy(r, addresses);
  }

  void start_proxy(int32_t r, const std::vector<std::vector<std::byte>>& addresses) {
    PerRank& rank = *ranks_[static_cast<size_t>(r)];
    rank.transport->connect(addresses, std::chrono::seconds(10));
    ProxyConfig config{.rank = Rank{r},
                       .layout = layout_,
                       .control_page = rank.control_page(),
                       .half_bytes = static_cast<uint64_t>(layout_.half_stride_bytes),
                       .peers = remote_members(Rank{r}),
                       .first_epoch = first_};
    for (int32_t i = 0; i < kRings; ++i) config.rings.push_back(rank.ring(i));
    rank.arrivals = std::make_unique<RingSink>(rank.ring(kRings));
    config.arrivals = rank.arrivals.get();
    ProxyOptions tell{.on_fault = [r](const ProxyFault& fault) {
      std::printf("NOT TRUE: the proxy of rank %d works: %s\n", r, fault.text.c_str());
    }};
    rank.proxy = std::make_unique<Proxy>(config, *rank.transport, tell);
  }

  Epoch first_;
  double network_bytes_per_s_;
  TopologyTables topology_;
  ArenaLayout layout_;
  std::vector<std::unique_ptr<PerRank>> ranks_;
  std::vector<std::byte*> bases_;
  std::unique_ptr<Wire> wire_;
};

}  // namespace tilewire

#include "executor/session_network.h"

#include <fmt/format.h>

#include <utility>

#include "base/hash.h"
#include "base/log.h"
#include "executor/relay.h"
#include "executor/session_times.h"
#include "memory/nic_access.h"
#include "transport/arrival.h"
#include "transport/bootstrap/control.h"
#include "transport/nics/machine_map.h"
#include "transport/nics/near_processors.h"
#include "transport/transport_choice.h"

namespace tilewire {
namespace {

// Of other nodes, whose calls end with those of a rank.
std::vector<Rank> remote_members(Topology t, Rank of) {
  std::vector<Rank> members;
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (!t.same_node(of, Rank{r}) && t.ends_together(of, Rank{r})) members.push_back(Rank{r});
  }
  return members;
}

RankPlace own_place(const GpuRank* gpu) {
  if (gpu != nullptr) return {.gpu = gpu->pci_address()};
  return {.numa = MachineMap().numa_of(allowed_processors())};
}

}  // namespace

SessionNetwork::SessionNetwork(const NetworkSite& site) : x_(site) {}

SessionNetwork::~SessionNetwork() = default;

void SessionNetwork::join(LocalReach reach) {
  const SteadyTime limit = deadline_in(to_milliseconds(x_.options.connect_deadline_s));
  std::vector<RankPlace> places;
  const TransportKind& kind = choose_transport(places, limit);
  if (kind.joins_hosts) nic_access_ = x_.arena.nic_access();
  transport_ = make_transport(kind, x_.options, context(places, std::move(reach)));
  register_new_ranges();
  // How arrivals are signalled must be the same on both sides of every path.
  const std::string agreed = transport_->caps().name + ", " + to_string(choose_arrival(transport_->caps()).strategy);
  const std::vector<Bytes> addresses = x_.control.allgather(
      {.kind = "addresses for " + agreed, .hash = hash64(agreed), .limit_variable = kJoinLimitVariable},
      transport_->address(), limit);
  transport_->connect(addresses, limit - steady_now());
  x_.control.barrier("connected", limit, kJoinLimitVariable);
  transport_->check_paths({limit - steady_now(), [this] { x_.control.throw_if_aborted(); }});
}

const TransportKind& SessionNetwork::choose_transport(std::vector<RankPlace>& places, SteadyTime deadline) const {
  TransportPlace place{
      .hosts = group_by_host(x_.control.hosts()).size(), .has_gpu_ranks = x_.gpu != nullptr, .has_wire = x_.has_wire};
  if (const auto access = x_.arena.nic_access()) place.gpu_obstacle = access->obstacle();
  const TransportView own{.obstacles = transport_obstacles(x_.options, place), .place = own_place(x_.gpu)};
  std::vector<std::vector<std::string>> by_rank;
  const GatherTag tag{.kind = "transports", .limit_variable = kJoinLimitVariable};
  for (const Bytes& bytes : x_.control.allgather(tag, own.pack(), deadline)) {
    TransportView view = TransportView::unpack(bytes);
    by_rank.push_back(std::move(view.obstacles));
    places.push_back(std::move(view.place));
  }
  return agree_on_transport(x_.options, by_rank);
}

TransportContext SessionNetwork::context(const std::vector<RankPlace>& places, LocalReach reach) const {
  TransportContext context{.rank = me(),
                           .ranks = x_.control.world_size(),
                           .peers = remote_members(x_.topology, me()),
                           .arena = x_.arena.base(),
                           .arena_bytes = static_cast<uint64_t>(x_.arena.layout().total_bytes()),
                           .strict_bytes = static_cast<uint64_t>(x_.arena.layout().half_offset(0)),
                           .local = x_.topology.local(me()).value,
                           .arena_pieces = x_.arena.ranges().size()};
  for (int32_t r = 0; r < context.ranks; ++r) {
    if (!x_.control.hosts()[r].is_same_host(x_.control.hosts()[me().value])) continue;
    if (Rank{r} == me()) context.host_index = context.host_ranks.size();
    context.host_ranks.push_back(places[r]);
    context.host_ranks.back().peers = remote_members(x_.topology, Rank{r}).size();
  }
  context.gpu_memory = nic_access_;
  context.local_reach = std::make_shared<LocalReach>(std::move(reach));
  return context;
}

bool SessionNetwork::has_new_ranges() const { return registered_ranges_ < x_.arena.ranges().size(); }

void SessionNetwork::register_new_ranges() {
  for (; has_new_ranges(); ++registered_ranges_) {
    const ArenaRange range = x_.arena.ranges()[registered_ranges_];
    transport_->register_arena(range.begin_bytes, range.bytes);
  }
  if (proxy_) {
    proxy_->set_committed(static_cast<uint64_t>(x_.arena.half_bytes()), static_cast<uint64_t>(x_.arena.user_bytes()));
  }
}

void SessionNetwork::start_proxy(Epoch first_epoch) {
  ProxyConfig config{.rank = me(),
                     .layout = x_.arena.layout(),
                     .control_page = x_.arena.control(),
                     .half_bytes = static_cast<uint64_t>(x_.arena.half_bytes()),
                     .user_bytes = static_cast<uint64_t>(x_.arena.user_bytes()),
                     .peers = remote_members(x_.topology, me()),
                     .first_epoch = first_epoch,
                     .gpu_memory = nic_access_.get(),
                     .has_left = [this](Rank peer) { return x_.control.has_left(peer); },
                     .leaving_time = to_milliseconds(x_.options.death_s),
                     .hearing_time = to_milliseconds(x_.options.death_s) / 20,
                     .words = x_.arena.is_host_accessible() ? x_.arena.base() : nullptr};
  const auto entries = static_cast<uint32_t>(x_.options.ring_entries);
  const auto make_ring = [&](int32_t number) {
    return x_.gpu != nullptr ? x_.gpu->make_ring(number, entries) : CommandRing(entries);
  };
  for (int32_t r = 0; r < kRings; ++r) {
    rings_.push_back(make_ring(r));
    config.rings.push_back(rings_.back().memory());
    producers_.emplace_back(rings_.back().memory());
  }
  // The host cannot write a word in GPU memory.
  if (x_.gpu != nullptr || x_.options.arrivals == "relay") {
    relay_ring_ = std::make_unique<RelayRing>(make_ring(GpuRank::kArrivalRing));
    config.arrivals = &relay_ring_->sink();
  } else {
    word_sink_ = std::make_unique<WordSink>(x_.arena.base(), x_.arena.layout());
    config.arrivals = word_sink_.get();
  }
  proxy_ = std::make_unique<Proxy>(
      config, *transport_,
      ProxyOptions{
          .idle = {}, .stays_near = x_.options.proxy_near_nic != 0, .on_fault = [this](const ProxyFault& fault) {
            try {
              x_.control.send_abort(ErrorKind::aborted, fault.text);
            } catch (const std::exception& error) {
              log_error("a proxy fault could not be told: {}", error.what());
            }
          }});
  log_info("transport {}: {}", transport_->caps().name, proxy_->arrival().reason);
}

void SessionNetwork::stop() noexcept {
  if (proxy_) proxy_->stop();
  if (transport_) transport_->close();
}

}  // namespace tilewire

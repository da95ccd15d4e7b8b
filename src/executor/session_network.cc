// How a session reaches the other ranks: mapped memory inside the node, a transport and a proxy between nodes.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "memory/nic_access.h"
#include "executor/relay.h"
#include "executor/session.h"
#include "executor/session_times.h"
#include "base/hash.h"
#include "transport/arrival.h"
#include "transport/bootstrap/fd_exchange.h"
#include "transport/emulated/local_reach.h"
#include "transport/emulated/wire_writer.h"
#include "transport/nics/machine_map.h"
#include "transport/nics/near_processors.h"
#include "transport/registry.h"
#include "transport/transport_choice.h"

namespace tilewire {

std::vector<UniqueFd> Session::exchange_fds(std::string_view purpose, int fd, SteadyTime deadline) {
  std::vector<UniqueFd> by_rank(control_->world_size());
  for (const std::vector<Rank>& host : group_by_host(control_->hosts())) {
    if (std::find(host.begin(), host.end(), rank()) == host.end()) continue;
    std::vector<UniqueFd> fds = tilewire::exchange_fds({.job = control_->job(),
                                                        .rank = rank(),
                                                        .ranks = host,
                                                        .purpose = std::string(purpose),
                                                        .poll = [this] { control_->throw_if_aborted(); }},
                                                       fd, deadline);
    for (size_t i = 0; i < host.size(); ++i) by_rank[host[i].value] = std::move(fds[i]);
  }
  return by_rank;
}

// All ranks have committed the same at creation.
void Session::map_node() {
  if (threads_) return;
  arena_fds_.resize(static_cast<size_t>(control_->world_size()));
  const std::vector<ArenaExport> own = new_exports();
  std::vector<ArenaRange> ranges;
  ranges.reserve(own.size());
  for (const ArenaExport& e : own) ranges.push_back(e.range);
  map_exports(own, ExportsByRank(static_cast<size_t>(control_->world_size()), ranges),
              deadline_in(to_milliseconds(options_.connect_deadline_s)));
}

// Pieces of the own arena that no other rank knows yet. The user area is for the own rank alone, which sends from it:
// peers map none of it, so that it may grow without them.
std::vector<ArenaExport> Session::new_exports() {
  std::vector<ArenaExport> fresh;
  if (threads_) return fresh;
  for (; known_exports_ < arena_->exports().size(); ++known_exports_) {
    const ArenaExport& e = arena_->exports()[known_exports_];
    if (e.range.begin_bytes < arena_->layout().user_offset()) fresh.push_back(e);
  }
  return fresh;
}

// Arenas of the own node are mapped, piece by piece in the order in which they came; of the others the first descriptor
// is kept, for a transport that plays a network. Collective among the ranks of a host, which make as many exchanges as
// the one with most pieces needs.
void Session::map_exports(const std::vector<ArenaExport>& own, const ExportsByRank& by_rank, SteadyTime deadline) {
  size_t rounds = 0;
  for (int32_t r = 0; r < control_->world_size(); ++r) {
    const bool is_here = control_->hosts()[r].is_same_host(control_->hosts()[rank().value]);
    if (is_here) rounds = std::max(rounds, by_rank[r].size());
  }
  for (size_t i = 0; i < rounds; ++i) {
    const int fd = i < own.size() ? own[i].fd : arena_->exports()[0].fd;
    std::vector<UniqueFd> fds = exchange_fds(fmt::format("arena {}", fd_exchanges_++), fd, deadline);
    for (int32_t r = 0; r < control_->world_size(); ++r) {
      const Rank peer{r};
      if (peer == rank() || i >= by_rank[r].size()) continue;
      if (topology().same_node(rank(), peer)) {
        check_same_host(peer, fds[r]);
        arena_->map_peer(peer, by_rank[r][i], std::move(fds[r]));
      } else if (!arena_fds_.empty() && i == 0) {
        arena_fds_[r] = std::move(fds[r]);
      }
    }
  }
}

void Session::check_same_host(Rank peer, const UniqueFd& fd) const {
  if (fd.is_open()) return;
  throw Error(ErrorKind::invalid_argument, {.what = "ranks of one node are on different hosts",
                                            .where = "topology",
                                            .values = fmt::format("rank {} on {}, rank {} on {}", rank().value,
                                                                  control_->hosts()[rank().value].to_text(), peer.value,
                                                                  control_->hosts()[peer.value].to_text()),
                                            .advice = "change TILEWIRE_LAYOUT, or leave it out"});
}

std::vector<Rank> Session::remote_members(Rank of) const {
  std::vector<Rank> members;
  const Topology t = topology();
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (!t.same_node(of, Rank{r}) && t.ends_together(of, Rank{r})) members.push_back(Rank{r});
  }
  return members;
}

TransportContext Session::transport_context() {
  TransportContext context{.rank = rank(),
                           .ranks = control_->world_size(),
                           .peers = remote_members(rank()),
                           .arena = arena_->base(),
                           .arena_bytes = static_cast<uint64_t>(arena_->layout().total_bytes()),
                           .strict_bytes = static_cast<uint64_t>(arena_->layout().half_offset(0)),
                           .local = topology().local(rank()).value,
                           .arena_pieces = arena_->ranges().size()};
  for (int32_t r = 0; r < context.ranks && !places_.empty(); ++r) {
    if (!control_->hosts()[r].is_same_host(control_->hosts()[rank().value])) continue;
    if (Rank{r} == rank()) context.host_index = context.host_ranks.size();
    context.host_ranks.push_back(places_[r]);
    context.host_ranks.back().peers = remote_members(Rank{r}).size();
  }
  context.gpu_memory = nic_access_;
  context.local_reach = std::make_shared<LocalReach>(local_reach());
  return context;
}

// For a transport that plays a network on this machine.
LocalReach Session::local_reach() {
  LocalReach reach;
  for (int32_t r = 0; r < control_->world_size(); ++r) {
    if (threads_) {
      reach.arena_bases.push_back(threads_->arenas->base(Rank{r}));
    } else {
      reach.arena_fds.push_back(arena_fds_[r].get());
    }
  }
  reach.exchange_fds = [this](std::string_view purpose, int fd, std::chrono::nanoseconds limit) {
    return exchange_fds(purpose, fd, deadline_in(limit));
  };
  if (wire_) reach.make_writer = [ring = wire_->ring()] { return std::make_unique<WireWriter>(ring); };
  return reach;
}

RankPlace Session::own_place() const {
  if (gpu_) return {.gpu = gpu_->pci_address()};
  return {.numa = MachineMap().numa_of(allowed_processors())};
}

const TransportKind& Session::choose_transport(SteadyTime deadline) {
  TransportPlace place{
      .hosts = group_by_host(control_->hosts()).size(), .has_gpu_ranks = gpu_ != nullptr, .has_wire = wire_ != nullptr};
  if (const auto access = arena_->nic_access()) place.gpu_obstacle = access->obstacle();
  const TransportView own{.obstacles = transport_obstacles(options_, place), .place = own_place()};
  std::vector<std::vector<std::string>> by_rank;
  for (const Bytes& bytes : control_->allgather({.kind = "transports"}, own.pack(), deadline)) {
    TransportView view = TransportView::unpack(bytes);
    by_rank.push_back(std::move(view.obstacles));
    places_.push_back(std::move(view.place));
  }
  return agree_on_transport(options_, by_rank);
}

void Session::make_transport() {
  const SteadyTime limit = deadline_in(to_milliseconds(options_.connect_deadline_s));
  const TransportKind& kind = choose_transport(limit);
  if (kind.joins_hosts) nic_access_ = arena_->nic_access();
  transport_ = tilewire::make_transport(kind, options_, transport_context());
  register_new_ranges();
  // How arrivals are signalled must be the same on both sides of every path.
  const std::string agreed = transport_->caps().name + ", " + to_string(choose_arrival(transport_->caps()).strategy);
  const std::vector<Bytes> addresses =
      control_->allgather({.kind = "addresses for " + agreed, .hash = hash64(agreed)}, transport_->address(), limit);
  transport_->connect(addresses, limit - steady_now());
  control_->barrier("connected", limit);
  transport_->check_paths({limit - steady_now(), [this] { control_->throw_if_aborted(); }});
  arena_fds_.clear();
}

void Session::register_new_ranges() {
  for (; registered_ranges_ < arena_->ranges().size(); ++registered_ranges_) {
    const ArenaRange range = arena_->ranges()[registered_ranges_];
    transport_->register_arena(range.begin_bytes, range.bytes);
  }
}

void Session::start_proxy() {
  ProxyConfig config{.rank = rank(),
                     .layout = arena_->layout(),
                     .control_page = arena_->control(),
                     .half_bytes = static_cast<uint64_t>(arena_->half_bytes()),
                     .user_bytes = static_cast<uint64_t>(arena_->user_bytes()),
                     .peers = remote_members(rank()),
                     .first_epoch = epoch_ + 1,
                     .gpu_memory = nic_access_.get(),
                     .has_left = [this](Rank peer) { return control_->has_left(peer); },
                     .leaving_time = to_milliseconds(options_.death_s),
                     .hearing_time = to_milliseconds(options_.death_s) / 20,
                     .words = arena_->is_host_accessible() ? arena_->base() : nullptr};
  const auto entries = static_cast<uint32_t>(options_.ring_entries);
  const auto make_ring = [&](int32_t number) { return gpu_ ? gpu_->make_ring(number, entries) : CommandRing(entries); };
  for (int32_t r = 0; r < kRings; ++r) {
    rings_.push_back(make_ring(r));
    config.rings.push_back(rings_.back().memory());
    producers_.emplace_back(rings_.back().memory());
  }
  // The host cannot write a word in GPU memory.
  if (gpu_ || options_.arrivals == "relay") {
    relay_ring_ = std::make_unique<RelayRing>(make_ring(GpuRank::kArrivalRing));
    config.arrivals = &relay_ring_->sink();
  } else {
    word_sink_ = std::make_unique<WordSink>(arena_->base(), arena_->layout());
    config.arrivals = word_sink_.get();
  }
  proxy_ = std::make_unique<Proxy>(
      config, *transport_,
      ProxyOptions{.idle = {}, .stays_near = options_.proxy_near_nic != 0, .on_fault = [this](const ProxyFault& fault) {
                     try {
                       control_->send_abort(ErrorKind::aborted, fault.text);
                     } catch (const std::exception& error) {
                       log_error("a proxy fault could not be told: {}", error.what());
                     }
                   }});
  log_info("transport {}: {}", transport_->caps().name, proxy_->arrival().reason);
}

}  // namespace tilewire

// How a session reaches the other ranks: mapped memory inside the node, a transport and a proxy between nodes.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "executor/relay.h"
#include "executor/session.h"
#include "executor/session_times.h"
#include "memory/memfd_arena.h"
#include "schedule/hash.h"
#include "transport/arrival.h"
#include "transport/bootstrap/fd_exchange.h"
#include "transport/registry.h"

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

// The arenas of the own node are mapped; the others' descriptors are kept for a transport that plays a network.
void Session::map_node() {
  if (threads_) return;
  auto& own = static_cast<MemfdArena&>(*arena_);
  arena_fds_ = exchange_fds("arena", own.export_fd(), deadline_in(to_milliseconds(options_.connect_deadline_s)));
  for (int32_t r = 0; r < control_->world_size(); ++r) {
    const Rank peer{r};
    if (peer == rank() || !topology().same_node(rank(), peer)) continue;
    if (!arena_fds_[r].is_open()) {
      throw Error(ErrorKind::invalid_argument,
                  {.what = "ranks of one node are on different hosts",
                   .where = "topology",
                   .values = fmt::format("rank {} on {}, rank {} on {}", rank().value,
                                         control_->hosts()[rank().value].to_text(), r, control_->hosts()[r].to_text()),
                   .advice = "change TILEWIRE_LAYOUT, or leave it out"});
    }
    own.map_peer(peer, std::move(arena_fds_[r]));
  }
}

std::vector<Rank> Session::remote_members() const {
  std::vector<Rank> members;
  const Topology t = topology();
  for (int32_t r = 0; r < t.ranks; ++r) {
    if (!t.same_node(rank(), Rank{r}) && t.ends_together(rank(), Rank{r})) members.push_back(Rank{r});
  }
  return members;
}

TransportContext Session::transport_context() {
  TransportContext context{.rank = rank(),
                           .ranks = control_->world_size(),
                           .peers = remote_members(),
                           .arena = arena_->base(),
                           .arena_bytes = static_cast<uint64_t>(arena_->layout().total_bytes())};
  for (int32_t r = 0; r < context.ranks; ++r) {
    if (threads_) {
      context.peer_arena_bases.push_back(threads_->arenas->base(Rank{r}));
    } else {
      context.peer_arena_fds.push_back(arena_fds_[r].get());
    }
  }
  context.exchange_fds = [this](std::string_view purpose, int fd, std::chrono::nanoseconds limit) {
    return exchange_fds(purpose, fd, deadline_in(limit));
  };
  return context;
}

void Session::make_transport() {
  transport_ = tilewire::make_transport(options_, transport_context());
  register_new_ranges();
  const SteadyTime limit = deadline_in(to_milliseconds(options_.connect_deadline_s));
  // How arrivals are signalled must be the same on both sides of every path.
  const std::string agreed = transport_->caps().name + ", " + to_string(choose_arrival(transport_->caps()).strategy);
  const std::vector<Bytes> addresses =
      control_->allgather({.kind = "addresses for " + agreed, .hash = hash64(agreed)}, transport_->address(), limit);
  transport_->connect(addresses, limit - steady_now());
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
                     .peers = remote_members(),
                     .first_epoch = epoch_ + 1};
  for (int32_t r = 0; r < kRings; ++r) {
    rings_.push_back(std::make_unique<CommandRing>(static_cast<uint32_t>(options_.ring_entries)));
    config.rings.push_back(rings_.back()->memory());
    producers_.emplace_back(rings_.back()->memory());
  }
  if (options_.arrivals == "relay") {
    relay_ring_ = std::make_unique<RelayRing>(static_cast<uint32_t>(options_.ring_entries));
    config.arrivals = &relay_ring_->sink();
  } else {
    word_sink_ = std::make_unique<WordSink>(arena_->base(), arena_->layout());
    config.arrivals = word_sink_.get();
  }
  proxy_ = std::make_unique<Proxy>(config, *transport_,
                                   ProxyOptions{.idle = {}, .on_fault = [this](const ProxyFault& fault) {
                                                  try {
                                                    control_->send_abort(ErrorKind::aborted, fault.text);
                                                  } catch (const std::exception& error) {
                                                    log_error("a proxy fault could not be told: {}", error.what());
                                                  }
                                                }});
  log_info("transport {}: {}", transport_->caps().name, proxy_->arrival().reason);
}

}  // namespace tilewire

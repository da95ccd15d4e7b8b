// How a session reaches the other ranks of its host: descriptors of arenas, and memory that is mapped.
#include <fmt/format.h>

#include <algorithm>

#include "executor/session.h"
#include "executor/session_times.h"
#include "transport/bootstrap/fd_exchange.h"
#include "transport/emulated/local_reach.h"
#include "transport/emulated/wire_writer.h"

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

}  // namespace tilewire

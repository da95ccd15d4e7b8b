#include "executor/session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <cmath>
#include <thread>

#include "base/log.h"
#include "base/options.h"
#include "executor/relay.h"
#include "memory/memfd_arena.h"
#include "memory/words.h"
#include "schedule/arena_layout.h"
#include "transport/bootstrap/fd_exchange.h"
#include "transport/registry.h"

namespace tilewire {
namespace {

constexpr const char* kVersion = TILEWIRE_VERSION;

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1e3)));
}

int32_t default_workers(int64_t ranks_here) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  return static_cast<int32_t>(std::max<int64_t>(1, cores / std::max<int64_t>(1, ranks_here)));
}

void throw_if_cancelled(const SessionSetup& setup) {
  if (setup.is_cancelled == nullptr || !*setup.is_cancelled) return;
  throw Error(ErrorKind::aborted, {.what = "the communicator's creation was cancelled",
                                   .where = fmt::format("rank {}", setup.options.rank)});
}

}  // namespace

std::unique_ptr<Session> Session::create(const SessionSetup& setup) {
  setup.options.validate();
  std::unique_ptr<Session> session(new Session(setup));
  session->join(setup);
  return session;
}

Session::Session(const SessionSetup& setup)
    : options_(setup.options),
      threads_(setup.threads),
      gemm_variant_(host_gemm_variant("auto")),
      attempts_(0),
      epoch_(static_cast<Epoch>(setup.options.first_epoch) - 1) {}

Session::~Session() { close(); }

// From the first connection to the barrier behind which the first call may come. An error on one rank reaches the
// others through the control connection.
void Session::join(const SessionSetup& setup) {
  Rendezvous joined = rendezvous({.rank = Rank{static_cast<int32_t>(options_.rank)},
                                  .world_size = static_cast<int32_t>(options_.world_size),
                                  .host_port = options_.rendezvous,
                                  .store = setup.store,
                                  .secret = options_.secret,
                                  .library_version = kVersion,
                                  .agreed_options = options_.agreement_text() + "\ngemm=" + to_string(gemm_variant_),
                                  .address = {.interface = options_.interface},
                                  .connect_deadline = milliseconds(options_.connect_deadline_s),
                                  .poll = [&setup] { throw_if_cancelled(setup); }});
  control_ =
      std::make_unique<ControlConnection>(std::move(joined),
                                          ControlOptions{.heartbeat = std::chrono::milliseconds(options_.heartbeat_ms),
                                                         .death = milliseconds(options_.death_s)},
                                          ControlCallbacks{.on_abort = [this](const AbortNotice&) {
                                            if (std::byte* base = abort_base_.load()) raise_abort(base);
                                          }});
  try {
    find_topology();
    make_arena();
    map_node();
    if (topology().nodes > 1) {
      make_transport();
      start_proxy();
    }
    team_ = std::make_unique<RoleTeam>(rank());
    relay_team_ = std::make_unique<RoleTeam>(rank());
    if (!options_.trace_file.empty()) start_trace_file();
    control_->barrier("created", deadline_in(milliseconds(options_.connect_deadline_s)));
  } catch (const Error& error) {
    if (!control_->aborted()) control_->send_abort(error.kind(), error.what());
    throw;
  }
}

// Nodes are hosts, unless a layout says otherwise.
void Session::find_topology() {
  const std::vector<int32_t> layout = parse_counts(options_.layout);
  const int32_t ranks = control_->world_size();
  if (!layout.empty()) {
    topology_ = TopologyTables::from_layout(layout);
    if (topology().ranks != ranks) {
      throw Error(ErrorKind::invalid_argument,
                  {.what = "the layout does not fit the world size",
                   .where = "topology",
                   .values = fmt::format("layout = {}, world size = {}", options_.layout, ranks),
                   .limit = "ranks of all nodes together must equal the world size"});
    }
  } else {
    std::vector<int32_t> node_of_rank(ranks);
    const auto hosts = group_by_host(control_->hosts());
    for (size_t n = 0; n < hosts.size(); ++n) {
      for (const Rank r : hosts[n]) node_of_rank[r.value] = static_cast<int32_t>(n);
    }
    topology_ = TopologyTables::from_nodes(node_of_rank);
  }
  int64_t ranks_here = 0;
  for (const HostIdentity& host : control_->hosts()) ranks_here += host.is_same_host(control_->hosts()[rank().value]);
  workers_ = options_.workers > 0 ? static_cast<int32_t>(options_.workers) : default_workers(ranks_here);
  log_info("{} ranks on nodes {}, node {} local rank {}, {} workers", ranks, topology_.describe(),
           topology().node(rank()).value, topology().local(rank()).value, workers_);
}

ArenaLayout Session::layout() const {
  return {
      .flags = {.ranks = control_->world_size(), .max_chunks = static_cast<int32_t>(options_.max_chunks_per_source)},
      .half_stride_bytes = options_.arena_reserve_bytes,
      .user_stride_bytes = options_.user_arena_reserve_bytes};
}

void Session::make_arena() {
  check_limits(layout());
  if (threads_) {
    arena_ = threads_->arenas->arena(rank());
  } else {
    arena_ = std::make_unique<MemfdArena>(
        ArenaConfig{.rank = rank(), .layout = layout(), .half_bytes = options_.arena_initial_bytes, .user_bytes = 0});
  }
  publish_sent(arena_->base(), epoch_);  // nothing of earlier calls is on its way
  abort_base_ = arena_->base();
  if (control_->aborted()) raise_abort(arena_->base());
}

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
  arena_fds_ = exchange_fds("arena", own.export_fd(), deadline_in(milliseconds(options_.connect_deadline_s)));
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
  const SteadyTime limit = deadline_in(milliseconds(options_.connect_deadline_s));
  const std::vector<Bytes> addresses = control_->allgather({.kind = "addresses"}, transport_->address(), limit);
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
                     .arena = arena_->base(),
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

std::string Session::transport_name() const { return transport_ ? transport_->caps().name : "none"; }

WaitOptions Session::wait_options() const {
  return {.spin = std::chrono::microseconds(options_.spin_us), .deadline = milliseconds(options_.deadline_s)};
}

SteadyTime Session::deadline() const { return deadline_in(milliseconds(options_.deadline_s)); }

CallFrame Session::frame(Epoch e) const {
  return {.topology = topology(), .arena = arena_->layout(), .me = rank(), .epoch = e};
}

void Session::grow_halves(uint64_t attempt, int64_t half_bytes) {
  // Doubling keeps the number of collective steps small; the reserve bounds it.
  const int64_t wanted = std::min(std::max(half_bytes, 2 * arena_->half_bytes()), arena_->layout().half_stride_bytes);
  try {
    arena_->grow(std::max(half_bytes, wanted), 0);
  } catch (const Error& error) {
    fail(error.kind(), fmt::format("rank {}: {}", rank().value, error.what()));
  }
  after_growth();
  control_->allgather({.kind = "arena growth", .call = attempt, .hash = static_cast<uint64_t>(half_bytes)}, {},
                      deadline());
}

void Session::after_growth() {
  if (!proxy_) return;
  register_new_ranges();
  proxy_->set_committed(static_cast<uint64_t>(arena_->half_bytes()), static_cast<uint64_t>(arena_->user_bytes()));
}

std::byte* Session::allocate_user(int64_t bytes) {
  const CallGuard guard(*this);
  throw_if_dead();
  const int64_t needed = arena_->user_bytes_for(bytes);
  if (needed > arena_->user_bytes()) {
    arena_->grow(0, needed);
    after_growth();
  }
  return arena_->allocate_user(bytes);
}

void Session::fail(ErrorKind kind, const std::string& text) {
  control_->send_abort(kind, text);
  // The verdict comes back through rank 0, or from this rank's own monitor when rank 0 is gone.
  const SteadyTime limit = deadline_in(milliseconds(options_.death_s) + std::chrono::seconds(1));
  while (!control_->aborted() && steady_now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  throw_if_dead();
  throw Error(kind, {.what = text});
}

bool Session::is_dead() const { return is_closed_ || control_->aborted().has_value(); }

void Session::throw_if_dead() const {
  control_->throw_if_aborted();
  if (is_closed_) {
    throw Error(ErrorKind::closed, {.what = "the communicator is closed",
                                    .where = fmt::format("rank {}", rank().value),
                                    .advice = "make a new one"});
  }
}

Session::CallGuard::CallGuard(Session& session) : session_(session) {
  if (session.is_in_call_.exchange(true)) {
    throw Error(ErrorKind::invalid_argument, {.what = "another call of this communicator is in flight",
                                              .where = fmt::format("rank {}", session.rank().value),
                                              .limit = "one call at a time",
                                              .advice = "make the calls from one thread, or use a communicator each"});
  }
}

Session::CallGuard::~CallGuard() { session_.is_in_call_ = false; }

void Session::start_trace() {
  if (!trace_) trace_ = std::make_unique<TraceLog>(rank(), options_.trace_events);
}

// Whether the file can be written shows at once, not after an hour of work.
void Session::start_trace_file() {
  write_trace(trace_path(), {});
  start_trace();
}

void Session::finish_trace_file() noexcept {
  if (options_.trace_file.empty() || !trace_) return;  // no trace: creation has failed
  try {
    write_trace(trace_path(), trace_events(), trace_->dropped());
  } catch (const std::exception& error) {
    log_error("the timeline is lost: {}", error.what());
  }
}

std::string Session::trace_path() const {
  if (control_->world_size() == 1) return options_.trace_file;
  const std::filesystem::path path(options_.trace_file);
  return path.parent_path() / fmt::format("{}.{}{}", path.stem().string(), rank().value, path.extension().string());
}

void Session::stop_trace() {
  if (!trace_) return;
  const std::vector<TraceEvent> events = trace_->collect();
  traced_.insert(traced_.end(), events.begin(), events.end());
  trace_.reset();
  if (!options_.trace_file.empty()) start_trace();  // the file wants all calls
}

std::vector<TraceEvent> Session::trace_events() const {
  std::vector<TraceEvent> events = traced_;
  if (trace_) {
    const std::vector<TraceEvent> now = trace_->collect();
    events.insert(events.end(), now.begin(), now.end());
  }
  return events;
}

void Session::wait_for_calls() const {
  const SteadyTime limit = deadline();
  while (is_in_call_ && steady_now() < limit) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// The last call's done words may still be on their way to ranks that wait for them. They need no peer's consent, only
// its memory, so this is short; a rank that died keeps nobody.
void Session::await_sent() const {
  const SteadyTime limit = deadline_in(std::chrono::seconds(1));
  while (proxy_ && !proxy_->has_fault() && !control_->aborted() && load_sent(arena_->base()) < epoch_ &&
         steady_now() < limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Order: nobody runs, nothing is sent, nothing is registered, then memory goes.
void Session::close() noexcept {
  const std::lock_guard lock(close_mutex_);
  if (is_closed_.exchange(true)) return;
  if (!is_in_call_) await_sent();
  // A call of another thread leaves by the abort word.
  if (arena_) raise_abort(arena_->base());
  for (int i = 0; is_in_call_ && i < 10'000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  team_.reset();
  relay_team_.reset();
  finish_trace_file();
  if (proxy_) proxy_->stop();
  if (transport_) transport_->close();
  if (control_) control_->close();
  abort_base_ = nullptr;
  if (arena_) arena_->close();
}

}  // namespace tilewire

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
#include "executor/session_times.h"
#include "memory/memfd_arena.h"
#include "memory/words.h"
#include "schedule/arena_layout.h"
#include "base/hash.h"
#include "transport/bootstrap/fd_exchange.h"
#include "transport/registry.h"

namespace tilewire {
namespace {

constexpr const char* kVersion = TILEWIRE_VERSION;

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
      epoch_(static_cast<Epoch>(setup.options.first_epoch) - 1),
      ended_epoch_(epoch_) {}

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
                                  .connect_deadline = to_milliseconds(options_.connect_deadline_s),
                                  .poll = [&setup] { throw_if_cancelled(setup); }});
  control_ =
      std::make_unique<ControlConnection>(std::move(joined),
                                          ControlOptions{.heartbeat = std::chrono::milliseconds(options_.heartbeat_ms),
                                                         .death = to_milliseconds(options_.death_s)},
                                          ControlCallbacks{.on_abort = [this](const AbortNotice&) {
                                            if (std::byte* base = abort_base_.load()) raise_abort(base);
                                          }});
  try {
    find_topology();
    open_gpu(setup);
    set_machine();
    make_arena();
    map_node();
    start_gpu();
    if (topology().nodes > 1) {
      join_nodes();
    } else if (rank() == Rank{0} && asks_for_network_cards(options_)) {
      log_warn(
          "transport = {} is not used: all {} ranks are on one node, which needs none; TILEWIRE_LAYOUT says which are "
          "nodes",
          options_.transport, topology().ranks);
    }
    hold_roll_call(setup);
    if (!gpu_) {
      team_ = std::make_unique<RoleTeam>(rank());
      relay_team_ = std::make_unique<RoleTeam>(rank());
    }
    make_trace(setup);
    control_->barrier("created", deadline_in(to_milliseconds(options_.connect_deadline_s)), kJoinLimitVariable);
  } catch (const Error& error) {
    if (!control_->aborted()) control_->send_abort(error.kind(), error.what());
    throw;
  }
}

void Session::join_nodes() {
  join_wire();
  network_ = std::make_unique<SessionNetwork>(NetworkSite{.options = options_,
                                                          .control = *control_,
                                                          .arena = *arena_,
                                                          .topology = topology(),
                                                          .gpu = gpu_.get(),
                                                          .has_wire = wire_ != nullptr});
  network_->join(local_reach());
  arena_fds_.clear();
  network_->start_proxy(epoch_ + 1);
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

// What the planner is told of the machine follows from what all ranks know: plans have a part that is the same on all.
void Session::set_machine() {
  if (gpu_) machine_ = gpu_machine(shares_->most_ranks_on_a_gpu());
  if (options_.emulated_bandwidth_gbps > 0) machine_.network_bytes_per_s = options_.emulated_bandwidth_gbps * 1e9 / 8;
  machine_.network_latency_s += options_.emulated_latency_us * 1e-6;
}

ArenaLayout Session::layout() const { return arena_layout(control_->world_size(), options_); }

void Session::make_arena() {
  check_limits(layout());
  if (threads_) {
    arena_ = threads_->arenas->arena(rank());
  } else {
    const ArenaConfig config{
        .rank = rank(), .layout = layout(), .half_bytes = options_.arena_initial_bytes, .user_bytes = 0};
    arena_ = gpu_ ? gpu_->make_arena(config) : std::make_unique<MemfdArena>(config);
  }
  agreed_half_bytes_ = arena_->half_bytes();
  publish_sent(arena_->control(), epoch_);  // nothing of earlier calls is on its way
  abort_base_ = arena_->control();
  if (control_->aborted()) raise_abort(arena_->control());
}

std::string Session::transport_name() const { return transport() ? transport()->caps().name : "none"; }

WaitOptions Session::wait_options() const {
  return {.spin = std::chrono::microseconds(options_.spin_us), .deadline = to_milliseconds(options_.deadline_s)};
}

SteadyTime Session::deadline() const { return deadline_in(to_milliseconds(options_.deadline_s)); }

CallFrame Session::frame(Epoch e) const {
  return {.topology = topology(), .arena = arena_->layout(), .me = rank(), .epoch = e};
}

void Session::fail(ErrorKind kind, const std::string& text) {
  control_->send_abort(kind, text);
  await_verdict();
  throw_if_dead();
  throw Error(kind, {.what = text});
}

// It comes through rank 0, or from this rank's own monitor when rank 0 is gone.
void Session::await_verdict() const {
  const SteadyTime limit = deadline_in(to_milliseconds(options_.death_s) + std::chrono::seconds(1));
  while (!is_dead() && steady_now() < limit) std::this_thread::sleep_for(std::chrono::milliseconds(1));
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

// Who held it at a fork is not in the child to end its turn.
Session::QuietGuard::QuietGuard(Session& session) : session_(session) {
  if (session.control_) session.control_->throw_if_forked();
  if (session.is_quiet_of_this_thread()) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "a call of this thread is still in flight",
                 .where = fmt::format("rank {}", session.rank().value),
                 .advice = "do not use the communicator in what a call asks for, such as the memory of its results"});
  }
  if (!session.quiet_.begin(to_milliseconds(session.options_.deadline_s))) {
    throw Error(ErrorKind::deadline, {.what = "a call of another thread is still in flight",
                                      .where = fmt::format("rank {}", session.rank().value),
                                      .limit = fmt::format("waited {:.3g} s", session.options_.deadline_s),
                                      .advice = "raise TILEWIRE_DEADLINE_S, or use a communicator for each thread"});
  }
  session.quiet_thread_ = std::this_thread::get_id();
}

Session::QuietGuard::QuietGuard(Session& session, NoLimit) : session_(session) { session.quiet_.begin(); }

Session::QuietGuard::~QuietGuard() {
  session_.quiet_thread_ = std::thread::id();
  session_.quiet_.end();
}

void Session::wait_for_calls() const {
  const SteadyTime limit = deadline();
  while ((is_in_call_ || !is_gpu_idle()) && steady_now() < limit)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// The done words of the last call that ended may still be on their way to ranks that wait for them, whatever became of
// the communicator since: who is still in that call may have nobody left who could tell it of the end. They need no
// peer's consent, only its memory, so this is short; a rank that died keeps nobody. No call runs.
void Session::await_sent() const noexcept {
  if (proxy() == nullptr) return;
  try {
    const Epoch last = gpu_ ? gpu_->last_epoch() : ended_epoch_;
    const SteadyTime limit = deadline_in(std::chrono::seconds(1));
    while (!proxy()->has_fault() && load_sent(arena_->control()) < last && steady_now() < limit) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  } catch (const std::exception& error) {
    log_warn("the last words of this rank may be lost: {}", error.what());
  }
}

void Session::tell_abort(const char* what_this_rank_did) noexcept {
  try {
    control_->send_abort(ErrorKind::aborted, fmt::format("rank {} {}", rank().value, what_this_rank_did));
  } catch (const std::exception& error) {
    log_warn("the others could not be told that this rank {}: {}", what_this_rank_did, error.what());
  }
}

void Session::tell_left_by_exception() noexcept {
  if (is_closed_ || control_->aborted()) return;
  tell_abort("left the scope of its communicator by an exception");
}

void Session::make_trace(const SessionSetup& setup) {
  const auto await_gpu = [this] {
    if (!is_dead()) wait_for_gpu();
    return is_gpu_idle();
  };
  trace_ = std::make_unique<SessionTrace>(TracedRank{.options = options_,
                                                     .control = *control_,
                                                     .gpu = gpu_.get(),
                                                     .kernels = kernel_faults_.get(),
                                                     .gpu_clock = setup.gpu_clock,
                                                     .await_gpu = await_gpu});
  if (!options_.trace_file.empty()) trace_->start_file();
}

void Session::start_trace() {
  const QuietGuard guard(*this);
  if (gpu_) wait_for_gpu();
  trace_->start();
}

void Session::stop_trace() {
  const QuietGuard guard(*this);
  trace_->stop();
}

TraceCounts Session::trace_counts() {
  const QuietGuard guard(*this);
  return trace_->counts();
}

TraceRecord Session::trace_record(int64_t first) {
  const QuietGuard guard(*this);
  return trace_->record(first);
}

void Session::finish_trace_file() noexcept {
  if (options_.trace_file.empty() || !trace_) return;
  try {
    const QuietGuard guard(*this);
    trace_->finish_file();
  } catch (const std::exception& error) {
    log_error("the timeline is lost: {}", error.what());
  }
}

// Order: nobody runs, nothing is sent, nothing is registered, then memory goes.
void Session::close() noexcept {
  if (is_in_call_ && is_quiet_of_this_thread()) {
    tell_abort("closed its communicator inside a call");
    return;
  }
  const std::lock_guard lock(close_mutex_);
  if (is_closed_.exchange(true)) return;
  if (is_in_call_) {
    // The call of another thread leaves: its roles by the abort word, its gathers by the abort that all ranks get.
    // Every wait in it ends by one of the two, so this one needs no limit.
    tell_abort("closed its communicator during a call");
    if (arena_) raise_abort(arena_->control());
    while (is_in_call_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end_gpu_calls();
  } else {
    end_gpu_calls();
    await_sent();
  }
  if (arena_) raise_abort(arena_->control());
  finish_trace_file();
  const QuietGuard quiet(*this, QuietGuard::NoLimit{});  // who holds it now is soon done: no call begins any more
  team_.reset();
  relay_team_.reset();
  fault_watch_.reset();
  if (network_) network_->stop();
  if (wire_) wire_->close();
  if (control_) control_->close();
  abort_base_ = nullptr;
  if (trace_) trace_->leave_gpu();
  if (gpu_) gpu_->close();
  if (arena_) arena_->close();
}

}  // namespace tilewire

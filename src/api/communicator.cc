#include <tilewire/communicator.h>

#include <fmt/format.h>

#include "api/communicator_parts.h"
#include "api/launcher_store.h"
#include "base/launch_environment.h"
#include "base/log.h"
#include "base/options.h"
#include "executor/call.h"
#include "executor/trace.h"
#include "operands/row_counts.h"
#include "transport/registry.h"

namespace tilewire {
namespace {

[[noreturn]] void refuse_without_place(const LaunchEnvironment& launch) {
  std::string advice = "pass rendezvous=\"host:port\" of rank 0, or set TILEWIRE_RENDEZVOUS";
  std::string values = fmt::format("launcher: {}", launch.source);
  if (launch.source == "openmpi" || launch.source == "mpich") {
    values += ", whose variables do not show that all ranks are on one host and name the job";
    advice += ", or MASTER_ADDR and MASTER_PORT, for all ranks";
  } else if (launch.source == "torchrun") {
    values =
        fmt::format("RANK and WORLD_SIZE are set, {}",
                    launch.lacking.empty() ? "neither MASTER_ADDR nor MASTER_PORT is" : launch.lacking + " is not");
    advice = fmt::format("set {}, or pass rendezvous=\"host:port\" of rank 0",
                         launch.lacking.empty() ? "MASTER_ADDR and MASTER_PORT" : launch.lacking);
  }
  throw Error(ErrorKind::invalid_argument, {.what = "the ranks have no place to meet",
                                            .where = "init",
                                            .values = std::move(values),
                                            .advice = std::move(advice)});
}

// Whoever names a place to meet or a rank has a job of several ranks in mind.
void check_meant_alone(const Options& options, const LaunchEnvironment& launch) {
  const bool has_rank = options.rank >= 0;
  if (options.world_size >= 0 || launch.source != "none" || (options.rendezvous.empty() && !has_rank)) return;
  const std::string rendezvous = options.rendezvous.empty() ? "no rendezvous" : "rendezvous = " + options.rendezvous;
  const std::string rank = has_rank ? fmt::format("rank = {}", options.rank) : "no rank";
  throw Error(ErrorKind::invalid_argument,
              {.what = has_rank ? "there is a rank, but nothing says of how many"
                                : "there is a place to meet, but nothing says how many ranks meet there",
               .where = "init",
               .values = fmt::format("{}, {}, no world size, no launcher", rendezvous, rank),
               .advice = has_rank ? "pass world_size too, or set TILEWIRE_WORLD_SIZE"
                                  : "pass rank and world_size, or set TILEWIRE_RANK and TILEWIRE_WORLD_SIZE"});
}

// Whether nothing is left to be asked of the launcher: its variables may then be as they are.
bool is_told_all(const Options& options, bool has_store) {
  return options.rank >= 0 && options.world_size >= 0 &&
         (options.world_size == 1 || has_store || !options.rendezvous.empty());
}

}  // namespace

Options with_launcher(Options options, bool has_store) {
  const LaunchEnvironment launch = is_told_all(options, has_store) ? LaunchEnvironment{} : launch_environment();
  check_meant_alone(options, launch);
  if (options.rank < 0) options.rank = options.world_size > 1 ? options.rank : launch.rank;
  if (options.world_size < 0) options.world_size = launch.world_size;
  if (options.rendezvous.empty() && !has_store) options.rendezvous = launch.rendezvous;
  if (options.rank < 0 || options.rank >= options.world_size) {
    throw Error(ErrorKind::invalid_argument,
                {.what = "this process has no rank",
                 .where = "init",
                 .values = fmt::format("rank = {}, world size = {}", options.rank, options.world_size),
                 .limit = "0 <= rank < world size",
                 .advice = "start it with a launcher, or pass rank and world size"});
  }
  if (options.rendezvous.empty() && !has_store) {
    if (options.world_size > 1) refuse_without_place(launch);
    options.rendezvous = "127.0.0.1:0";
  }
  return options;
}

SessionSetup session_setup(Options options, const std::atomic<bool>* is_cancelled) {
  SessionSetup setup{.options = std::move(options), .threads = {}, .is_cancelled = is_cancelled};
#if defined(TILEWIRE_HAS_CUDA)
  setup.roll_call = hold_roll_call;
  setup.gpu_clock = make_global_clock;
#endif
  return setup;
}

WorkEvent to_work_event(const TraceEvent& e) {
  return {.rank = e.rank,
          .role = e.role,
          .worker = e.worker,
          .name = e.name,
          .work = e.work,
          .source = e.source,
          .t_begin_ns = e.t_begin_ns,
          .t_wait_ns = e.t_wait_ns,
          .t_end_ns = e.t_end_ns,
          .bytes = e.bytes,
          .link = to_string(e.link)};
}

std::vector<TransportInfo> transports(const Options& options) {
  std::vector<TransportInfo> infos;
  for (const TransportKind& kind : transport_kinds()) {
    infos.push_back({std::string(kind.name), std::string(kind.purpose), kind.why_unavailable(options)});
  }
  return infos;
}

bool has_gpu_ranks() {
#if defined(TILEWIRE_HAS_CUDA)
  return true;
#else
  return false;
#endif
}

Communicator Communicator::init(Options options, const StoreFunctions* store, const std::atomic<bool>* is_cancelled) {
  set_log_level(parse_log_level(options.log_level));
  SessionSetup setup = session_setup(with_launcher(std::move(options), store != nullptr), is_cancelled);
  std::unique_ptr<LauncherStore> launcher_store;
  if (store != nullptr) {
    launcher_store = std::make_unique<LauncherStore>(*store);
    setup.store = launcher_store.get();
  }
  set_log_rank(Rank{static_cast<int32_t>(setup.options.rank)});
  try {
    setup.options.validate();
  } catch (const Error& error) {
    refuse_init(setup.options, error, store, is_cancelled);
    throw;
  }
  std::unique_ptr<Session> session = Session::create(setup);
  check_transport_name(session->options());  // by now the same on all ranks
  return Communicator(std::make_unique<Parts>(std::move(session)));
}

Communicator::Communicator(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

Communicator::Parts& Communicator::parts() const {
  if (parts_) return *parts_;
  throw Error(ErrorKind::closed, {.what = "the communicator was moved from", .advice = "use the one that has it now"});
}

int32_t Communicator::rank() const { return parts().session->rank().value; }
int32_t Communicator::world_size() const { return parts().session->topology().ranks; }
int32_t Communicator::nodes() const { return parts().session->topology().nodes; }
int32_t Communicator::node() const { return parts().session->topology().node(parts().session->rank()).value; }
int32_t Communicator::local_rank() const { return parts().session->topology().local(parts().session->rank()).value; }
std::string Communicator::layout() const { return parts().session->topology_tables().describe(); }
std::string Communicator::transport() const { return parts().session->transport_name(); }
int32_t Communicator::gpu() const {
  GpuRank* const gpu = parts().session->gpu();
  return gpu != nullptr ? gpu->device() : -1;
}
std::string Communicator::id() const { return parts().session->control().job().nonce_hex(); }
const Options& Communicator::options() const { return parts().session->options(); }

void Communicator::barrier() {
  parts().session->throw_if_dead();
  parts().session->control().barrier("barrier", parts().session->deadline());
}

std::vector<std::string> Communicator::all_gather_bytes(const std::string& mine) {
  parts().session->throw_if_dead();
  std::vector<std::string> all;
  try {
    for (const Bytes& bytes :
         parts().session->control().allgather({.kind = "bytes"}, to_bytes(mine), parts().session->deadline())) {
      all.push_back(to_text(bytes));
    }
  } catch (const Error& error) {
    // Too many bytes: the others wait for them, and must not take this rank's next ones in their place.
    if (error.kind() == ErrorKind::invalid_argument && world_size() > 1) abort(error.what());
    throw;
  }
  return all;
}

void Communicator::check() const { parts().session->check(); }

void Communicator::abort(const std::string& why) noexcept {
  try {
    parts().session->control().send_abort(ErrorKind::aborted, fmt::format("rank {}: {}", rank(), why));
  } catch (const std::exception& error) {
    log_error("an abort could not be told: {}", error.what());
  }
}

void Communicator::refuse_call(const std::string& op, const Error& error, bool exchanges_rows) {
  ErrorParts parts = error.parts();
  parts.where = fmt::format("rank {}, {}", rank(), op);
  const Error told(error.kind(), std::move(parts));
  Call call(*this->parts().session, op.c_str());
  if (exchanges_rows) {
    call.refuse_in_exchange(exchanged_rows({.from = RowCounts::From::exchange, .counts = {}}), told, kSameCallsAdvice);
  } else {
    call.refuse(told);
  }
}

void Communicator::synchronize() const {
  parts().session->wait_for_calls();
  check();
}

bool Communicator::is_idle() const {
  GpuRank* const gpu = parts().session->gpu();
  return gpu == nullptr || gpu->is_idle();
}

void Communicator::close() noexcept {
  if (parts_) parts_->session->close();
}
bool Communicator::is_closed() const { return !parts_ || parts_->session->is_closed(); }

void* Communicator::allocate(int64_t bytes) { return parts().session->allocate_user(bytes); }
void Communicator::free(void* pointer) { parts().session->free_user(static_cast<std::byte*>(pointer)); }

void Communicator::start_trace() { parts().session->start_trace(); }
void Communicator::stop_trace() { parts().session->stop_trace(); }

std::vector<WorkEvent> Communicator::trace_events(int64_t first) const {
  std::vector<WorkEvent> events;
  for (const TraceEvent& e : parts().session->trace_record(first).events) events.push_back(to_work_event(e));
  return events;
}

int64_t Communicator::trace_event_count() const { return parts().session->trace_counts().events; }
int64_t Communicator::trace_dropped() const { return parts().session->trace_counts().dropped; }

void Communicator::write_trace(const std::string& path) const {
  const TraceRecord record = parts().session->trace_record();
  tilewire::write_trace(path, record.events, {.dropped = record.dropped, .run = id(), .world_size = world_size()});
}

}  // namespace tilewire

// One rank of a communicator, put together: control connection, arena, transport, proxy, command rings, role threads,
// and the numbers of its calls. Ops run on a Session; the public Communicator owns one.
//
// A GPU rank has no role threads: its calls are kernels, which end behind the back of the host (see GpuRank). What a
// kernel says went wrong is told to all ranks as an abort, and what it notes becomes a timeline (see SessionTrace).
//
// Thread-safety: one call at a time, from any thread (see QuietGuard); close() and is_dead() from any thread.
#pragma once

#include <tilewire/options.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "arithmetic/host_gemm.h"
#include "base/ids.h"
#include "executor/gpu_rank.h"
#include "executor/gpu_shares.h"
#include "executor/kernel_faults.h"
#include "executor/role_team.h"
#include "executor/session_network.h"
#include "executor/session_trace.h"
#include "executor/trace.h"
#include "executor/turn_queue.h"
#include "memory/arena.h"
#include "memory/thread_arena.h"
#include "memory/wait.h"
#include "schedule/call_roles.h"
#include "schedule/machine.h"
#include "schedule/topology_tables.h"
#include "transport/bootstrap/control.h"
#include "transport/bootstrap/key_value_store.h"
#include "transport/emulated/wire_link.h"

namespace tilewire {

// Ranks as threads of one process: what they share besides the rendezvous.
struct ThreadRanks {
  ThreadArenaGroup* arenas = nullptr;
};

struct SessionSetup {
  Options options;                 // rank, world size and rendezvous are filled in
  KeyValueStore* store = nullptr;  // instead of options.rendezvous; used during create() only
  std::optional<ThreadRanks> threads;
  const std::atomic<bool>* is_cancelled = nullptr;  // looked at a few times a second while other ranks are waited for
  const CudaDriver* gpu_driver = nullptr;           // tests: in place of that of this process
  RollCallKernel roll_call{};                       // needed where ranks share a GPU
  GpuClockMaker gpu_clock{};                        // needed for timelines of GPU ranks
};

class Session {
 public:
  // Collective. Throws Error as rendezvous() does, and Error(unavailable, resource) from memory and transports, on
  // every rank that got that far; a rank that fails later tells the others.
  static std::unique_ptr<Session> create(const SessionSetup& setup);
  ~Session();  // close(), without waiting for any peer
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Rank rank() const { return Rank{control_->rank()}; }
  const TopologyTables& topology_tables() const { return topology_; }
  Topology topology() const { return topology_.view(); }
  const Options& options() const { return options_; }
  const Machine& machine() const { return machine_; }
  int32_t workers() const { return workers_; }  // SMs where it is a GPU rank
  Arena& arena() { return *arena_; }
  ControlConnection& control() { return *control_; }
  // nullptr on CPU ranks.
  GpuRank* gpu() { return gpu_.get(); }
  KernelFaults& kernel_faults() { return *kernel_faults_; }
  // What kernels are given; `names`: of their op, for errors.
  DeviceRank device_rank(const KernelNames& names);
  // Error(invalid_argument) unless calls may have their operands there.
  void check_operands_on(bool is_gpu, const char* op) const;
  // The same of an operation that CPU ranks alone can do, wherever its operands are.
  void check_has_cpu_ranks(const char* op) const;
  // Of CPU ranks.
  RoleTeam& team() { return *team_; }
  RoleTeam& relay_team() { return *relay_team_; }
  // nullptr where the proxy publishes arrivals itself, or there is none.
  RelayRing* relay_ring() { return network_ ? network_->relay_ring() : nullptr; }
  // nullptr while tracing is off.
  TraceRing* trace_ring(const char* role, int32_t worker) { return trace_->ring(role, worker); }
  // As SessionTrace has it; they take a QuietGuard.
  void start_trace();
  void stop_trace();
  TraceCounts trace_counts();
  TraceRecord trace_record(int64_t first = 0);
  // nullptr where there is one node, as the proxy.
  const Transport* transport() const { return network_ ? network_->transport() : nullptr; }
  const Proxy* proxy() const { return network_ ? network_->proxy() : nullptr; }
  HostGemmVariant gemm_variant() const { return gemm_variant_; }
  // Where there are several nodes.
  CommandProducer& ring(Ring r) { return network_->ring(r); }
  WaitOptions wait_options() const;
  SteadyTime deadline() const;
  std::string transport_name() const;

  // A call that the GPU ends by itself.
  void note_launched(uint64_t attempt);
  // Before the next call: those that the GPU has ended end here, and what a kernel has left for is thrown.
  void look_at_gpu();
  // Until all launched calls have ended, or past the deadline: Error(deadline).
  void wait_for_gpu() const;

  // Calls tried so far, refused ones too; the same on all ranks that agree.
  uint64_t next_attempt() { return ++attempts_; }
  // Calls that touched words. A call that gets an epoch either ends or leaves the communicator dead.
  Epoch next_epoch() { return ++epoch_; }
  void note_ended(Epoch epoch) { ended_epoch_ = epoch; }
  Epoch epoch() const { return epoch_; }
  CallFrame frame(Epoch e) const;

  // What every rank has of each half; the same number on all.
  int64_t agreed_half_bytes() const { return agreed_half_bytes_; }
  // Appends memory to the halves, on all ranks: collective, inside call `attempt`.
  void grow_halves(uint64_t attempt, int64_t half_bytes);
  // Own memory for comm.empty(), grown if need be; local.
  std::byte* allocate_user(int64_t bytes);
  void free_user(std::byte* pointer) { arena_->free_user(pointer); }

  // Ends the communicator on all ranks with this error, waits for the verdict that all ranks get, and throws it.
  [[noreturn]] void fail(ErrorKind kind, const std::string& text);
  // Waits until the communicator is dead, a little longer than the news of a death can take.
  void await_verdict() const;
  bool is_dead() const;
  bool is_closed() const { return is_closed_; }
  // Until no call is in flight, or the deadline has passed.
  void wait_for_calls() const;
  // throw_if_dead(), and what a kernel has left for without having been told of it yet: then it waits for the verdict.
  void throw_if_given_up() const;
  // That, and once what a kernel of this rank has remarked. No call throws this: other ranks may be in that call.
  void check() const;
  // Throws the abort, or Error(closed) after close().
  void throw_if_dead() const;

  // Held by what no call may run beside, calls too. Waits for those of other threads, in the order of coming;
  // Error(deadline) when one of them takes too long, Error(closed) in a forked child, Error(invalid_argument) at once
  // in the thread that holds it: what a call asks of its user must not begin another one. close() waits for it.
  class QuietGuard {
   public:
    explicit QuietGuard(Session& session);
    struct NoLimit {};  // for close(), when no call can begin any more
    QuietGuard(Session& session, NoLimit);
    ~QuietGuard();
    QuietGuard(const QuietGuard&) = delete;
    QuietGuard& operator=(const QuietGuard&) = delete;

   private:
    Session& session_;
  };
  // Held by a thread whose next calls belong together: those of other threads come before the first or behind the last,
  // on each rank. Throws as QuietGuard does.
  class CallRow {
   public:
    explicit CallRow(Session& session) : guard_(session), session_(session) {
      session.row_thread_ = std::this_thread::get_id();
    }
    ~CallRow() { session_.row_thread_ = std::thread::id(); }
    CallRow(const CallRow&) = delete;
    CallRow& operator=(const CallRow&) = delete;

   private:
    QuietGuard guard_;
    Session& session_;
  };
  // Held during a call: close() ends it on all ranks. In a row it has its turn by that, but not inside another call.
  class CallGuard {
   public:
    explicit CallGuard(Session& session) : session_(session) {
      if (session.row_thread_ != std::this_thread::get_id() || session.is_in_call_) guard_.emplace(session);
      session.is_in_call_ = true;
    }
    ~CallGuard() { session_.is_in_call_ = false; }
    CallGuard(const CallGuard&) = delete;
    CallGuard& operator=(const CallGuard&) = delete;

   private:
    std::optional<QuietGuard> guard_;
    Session& session_;
  };

  // Before a close that an exception is the reason of: the others get Error(aborted) that names this rank. Nothing on a
  // dead or closed communicator.
  void tell_left_by_exception() noexcept;
  // Needs no peer; idempotent; stops the proxy before any memory goes. Inside a call of its own thread it can wait for
  // nothing: it ends the communicator on all ranks, and is left to be done later.
  void close() noexcept;

 private:
  explicit Session(const SessionSetup& setup);
  void join(const SessionSetup& setup);
  void find_topology();
  void set_machine();
  void open_gpu(const SessionSetup& setup);
  void join_wire();
  void tell_wire_of_new_memory();
  void hold_roll_call(const SessionSetup& setup);
  void share_roll_call_page(UniqueFd& page);
  void start_gpu();
  void end_gpu_calls() noexcept;
  void end_launched_calls();
  bool is_gpu_idle() const noexcept;
  bool is_quiet_of_this_thread() const { return quiet_thread_ == std::this_thread::get_id(); }
  bool has_kernel_given_up() const;
  void tell_kernel_fault(const FaultRecord& record);
  void make_arena();
  void map_node();
  using ExportsByRank = std::vector<std::vector<ArenaRange>>;
  std::vector<ArenaExport> new_exports();
  void map_exports(const std::vector<ArenaExport>& own, const ExportsByRank& by_rank, SteadyTime deadline);
  void check_same_host(Rank peer, const UniqueFd& fd) const;
  void join_nodes();
  std::vector<UniqueFd> exchange_fds(std::string_view purpose, int fd, SteadyTime deadline);
  LocalReach local_reach();
  void grow_user(int64_t needed);
  void after_growth();
  void await_sent() const noexcept;
  void tell_abort(const char* what_this_rank_did) noexcept;
  void make_trace(const SessionSetup& setup);
  void finish_trace_file() noexcept;
  ArenaLayout layout() const;

  Options options_;
  std::optional<ThreadRanks> threads_;
  Machine machine_;
  int32_t workers_ = 1;
  HostGemmVariant gemm_variant_;
  TopologyTables topology_;
  std::unique_ptr<Arena> arena_;
  size_t known_exports_ = 0;                 // of the own arena, that other ranks know
  int64_t fd_exchanges_ = 0;                 // of arenas
  std::vector<UniqueFd> arena_fds_;          // of the other ranks of this host, by rank; used while things are joined
  std::unique_ptr<SessionNetwork> network_;  // where there are several nodes
  std::unique_ptr<GpuRank> gpu_;
  std::unique_ptr<GpuShares> shares_;  // of GPU ranks
  std::unique_ptr<WireLink> wire_;
  size_t known_to_wire_ = 0;  // exports of the own arena
  std::unique_ptr<KernelFaults> kernel_faults_;
  std::unique_ptr<FaultWatch> fault_watch_;
  std::deque<uint64_t> launched_;  // attempts that have not ended here
  std::unique_ptr<RoleTeam> team_;
  std::unique_ptr<RoleTeam> relay_team_;
  std::unique_ptr<ControlConnection> control_;
  std::unique_ptr<SessionTrace> trace_;
  uint64_t attempts_ = 0;
  Epoch epoch_ = 0;
  Epoch ended_epoch_ = 0;                        // of a CPU rank's last call that ended well
  TurnQueue quiet_;                              // what a QuietGuard holds
  std::atomic<std::thread::id> quiet_thread_{};  // who does
  std::atomic<bool> is_in_call_{false};
  std::atomic<std::thread::id> row_thread_{};  // of a CallRow
  int64_t agreed_half_bytes_ = 0;
  std::atomic<bool> is_closed_{false};
  std::mutex close_mutex_;
  std::atomic<std::byte*> abort_base_{nullptr};  // where on_abort() raises the abort word
};

}  // namespace tilewire

// A communicator: the ranks of one job, joined. Everything else of Tilewire is called with one.
//
//   auto comm = tilewire::Communicator::init();          // collective; rank and size from the launcher
//   tilewire::all_gather_matmul(comm, arguments);        // see all_gather_gemm.h
//   comm.close();                                        // needs no peer
//
// Thread-safety: all from any thread, one call at a time. What no call may run beside (a call, refuse_call, allocate
// and all of the trace) waits for that of another thread, and throws Error(deadline) when it takes longer than
// deadline_s; inside a call of the same thread, as in its make_results, it is Error(invalid_argument). One that was
// moved from is closed. The destructor closes and waits for no peer; where an exception unwinds the communicator's scope, the
// others get Error(aborted) that names this rank.
#pragma once

#include <tilewire/error.h>
#include <tilewire/export.h>
#include <tilewire/options.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewire {

// A store that the launcher provides (torch.distributed's, for example). get() waits for the key and throws when it is
// not there after timeout_s.
struct StoreFunctions {
  std::function<void(const std::string& key, const std::string& value)> set;
  std::function<std::string(const std::string& key, double timeout_s)> get;
};

// One piece of work of one role, for timelines. Times are of a clock that all ranks of a host share.
struct WorkEvent {
  int32_t rank = 0;
  std::string role;
  int32_t worker = 0;
  std::string name;
  int64_t work = -1;
  int32_t source = -1;
  int64_t t_begin_ns = 0;
  int64_t t_wait_ns = 0;
  int64_t t_end_ns = 0;
  int64_t bytes = 0;
  std::string link;  // "none", "copy", "node" or "network"
};

// A transport that is compiled in.
struct TransportInfo {
  std::string name;
  std::string purpose;
  std::string why_unavailable;  // "" when it can be used here
};

// All of them, in the order in which transport=auto prefers them.
TILEWIRE_API std::vector<TransportInfo> transports(const Options& options);

// Whether ranks may be GPUs (the option device = cuda): it was built with CUDA.
TILEWIRE_API bool has_gpu_ranks();

class TILEWIRE_API Communicator {
 public:
  // Collective. Rank, world size and rendezvous that `options` leaves open come from the launcher (torchrun, mpirun,
  // srun or tilewire run); without a launcher it is a job of one rank. `store` replaces the rendezvous address. Throws
  // Error on every rank: deadline (lists the ranks that did not come), mismatch (names who differs), resource,
  // unavailable, invalid_argument.
  // When `is_cancelled` becomes true while other ranks are waited for, it throws Error(aborted) within a second.
  static Communicator init(Options options = Options::from_environment(), const StoreFunctions* store = nullptr,
                           const std::atomic<bool>* is_cancelled = nullptr);

  // In place of init(), on a rank that has found out that it will not come: `error` says why. The ranks that wait in
  // init() get Error(refused) that quotes it, where rank 0 can be reached within two seconds; nobody hears of it from rank 0
  // itself. Of `options` only rank, world_size, rendezvous, secret and interface count; what they leave open comes from
  // the environment.
  static void refuse_init(const Options& options, const Error& error, const StoreFunctions* store = nullptr,
                          const std::atomic<bool>* is_cancelled = nullptr) noexcept;

  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  int32_t rank() const;
  int32_t world_size() const;
  int32_t node() const;
  int32_t local_rank() const;
  int32_t nodes() const;
  std::string layout() const;     // "2+2": ranks of each node
  std::string transport() const;  // name of what moves chunks between nodes, "none" on one node
  int32_t gpu() const;            // number of this rank's GPU, as CUDA numbers those it can see; -1 on CPU ranks
  std::string id() const;         // no two communicators have the same; equal on all ranks of one
  const Options& options() const;

  // Collective, over the control connection: for set-up and tests, not for speed.
  void barrier();
  // More bytes than fit (64 MiB of all ranks together, as many for each) are an Error(invalid_argument) that ends the
  // communicator: the others may wait for them.
  std::vector<std::string> all_gather_bytes(const std::string& mine);

  // Throws what the communicator died of, or Error(closed). A dead communicator can only be closed.
  void check() const;
  // Ends the communicator on all ranks, calls in flight included; each gets Error(aborted) that quotes `why` and names
  // this rank. Does not wait.
  void abort(const std::string& why) noexcept;
  // For front ends, whose own checks come before those of an operation: `op` is not called on this rank. The other
  // ranks get what `error` says, as for a call that the operation itself refuses. With `exchanges_rows` it is a call
  // whose ranks exchange row counts: the refusal travels in that exchange, which this waits for. Throws as check()
  // does.
  void refuse_call(const std::string& op, const Error& error, bool exchanges_rows = false);

  // Waits for calls in flight (on CPU ranks a call has ended when it returns; on GPU ranks for all but replays of
  // graphs), then check().
  void synchronize() const;
  // Whether the GPU has ended all calls of this rank, replays of graphs aside; true on CPU ranks. Waits for nothing.
  bool is_idle() const;
  // Ends it. Idempotent, needs no peer. Inside a call of this thread it ends that on all ranks, and has to come again.
  void close() noexcept;
  bool is_closed() const;

  // Memory in the arena, aligned to 256 bytes: an input that lies there is sent from where it is. Legal to free after
  // close(). Throws Error(resource).
  void* allocate(int64_t bytes);
  void free(void* pointer);

  // Timeline of the calls between the two, of this rank. One is kept: a start forgets the one before. It has room for
  // options().trace_events; what comes later is dropped, and counted. A start beside one that is under way does
  // nothing; with options().trace_file one is under way from creation to close, and a stop does nothing either.
  void start_trace();
  void stop_trace();
  // Since creation: how many events were recorded, forgotten ones too, and how many there was no room for.
  int64_t trace_event_count() const;
  int64_t trace_dropped() const;
  // Of the timeline that is kept; from event number `first` on, as trace_event_count() counts them.
  std::vector<WorkEvent> trace_events(int64_t first = 0) const;
  // Perfetto JSON of the timeline that is kept; otherData.dropped is what that one had no room for. Throws
  // Error(resource) naming the path.
  void write_trace(const std::string& path) const;

  class Parts;  // for the library itself
  Parts& parts() const;

 private:
  explicit Communicator(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tilewire

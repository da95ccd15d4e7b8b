// The proxy: one thread that carries out what roles ask for through command rings, over any transport, from creation to
// stop(). It is never told that a call begins.
//
// After 1 ms without work it naps, 50 us at a time; what is posted meanwhile waits that long at most.
//
// Failure: the first bad command, failed request or exception on the proxy thread is reported once through on_fault.
// From then on the proxy drops what the rings hold, so that no producer hangs on a full ring, sends nothing and
// publishes no sent(e) any more, until stop().
//
// Thread-safety: all methods may be called from any thread; on_fault runs on the proxy thread and must not call stop().
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "transport/idle_pacer.h"
#include "transport/proxy_engine.h"

namespace tilewire {

struct ProxyOptions {
  IdleTimes idle{};
  bool stays_near = true;                             // its thread stays on Transport::near_processors
  std::function<void(const ProxyFault&)> on_fault{};  // may be empty: the fault is then logged only
};

class Proxy {
 public:
  // Starts the thread. `transport` is connected and must outlive the proxy; nobody else uses it before stop().
  // Throws Error(invalid_argument) for a bad configuration, Error(unavailable) as choose_arrival does, Error(resource)
  // when there can be no thread.
  Proxy(ProxyConfig config, Transport& transport, ProxyOptions options);
  ~Proxy() { stop(); }
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  // Ends the thread; idempotent; takes as long as one round of it. Drops what is still in rings or in flight: for an
  // orderly end wait for sent(last call) first (load_sent). The transport is closed by its owner, afterwards.
  void stop() noexcept;

  // The arena has grown: commands may use this much from now on.
  void set_committed(uint64_t half_bytes, uint64_t user_bytes);

  const ArrivalChoice& arrival() const { return engine_.arrival(); }
  ProxyTotals totals() const { return counters_.totals(config_.peers); }
  bool has_fault() const { return has_fault_.load(std::memory_order_acquire); }
  // The thread runs. After a fault it still does; false after stop() or when it ended against all expectation.
  bool is_running() const { return is_running_.load(std::memory_order_acquire); }
  // Grows as long as the thread makes rounds: a watcher that sees the same value for long knows that it hangs.
  uint64_t rounds() const { return rounds_.value(); }

 private:
  void run() noexcept;
  void serve();
  void look_at_devices();
  void discard_until_stop() noexcept;
  void report(const ProxyFault& fault) noexcept;
  bool must_stop() const { return must_stop_.load(std::memory_order_acquire); }

  ProxyConfig config_;
  ProxyOptions options_;
  CommittedBytes committed_;
  ProxyCounters counters_;
  Counter rounds_;
  Transport& transport_;
  ProxyEngine engine_;
  std::chrono::steady_clock::time_point next_look_{};
  std::atomic<bool> must_stop_{false};
  std::atomic<bool> has_fault_{false};
  std::atomic<bool> is_running_{true};
  std::mutex stop_mutex_;  // guards join
  std::thread thread_;
};

}  // namespace tilewire

#include "transport/proxy.h"

#include <fmt/format.h>
#include <pthread.h>

#include <system_error>

#include "base/log.h"
#include "transport/nics/near_processors.h"

namespace tilewire {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

}  // namespace

Proxy::Proxy(ProxyConfig config, Transport& transport, ProxyOptions options)
    : config_(std::move(config)),
      options_(std::move(options)),
      counters_(config_.peers.size()),
      transport_(transport),
      engine_(config_, transport, committed_, counters_) {
  set_committed(config_.half_bytes, config_.user_bytes);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& e) {
    throw Error(ErrorKind::resource, {.what = "the proxy thread cannot be started",
                                      .where = fmt::format("rank {}", config_.rank.value),
                                      .values = e.what(),
                                      .advice = "raise the limit on threads (ulimit -u)"});
  }
}

void Proxy::stop() noexcept {
  must_stop_.store(true, std::memory_order_release);
  const std::lock_guard lock(stop_mutex_);
  if (thread_.joinable()) thread_.join();
}

void Proxy::set_committed(uint64_t half_bytes, uint64_t user_bytes) {
  committed_.half.store(half_bytes, std::memory_order_release);
  committed_.user.store(user_bytes, std::memory_order_release);
}

void Proxy::run() noexcept {
  pthread_setname_np(pthread_self(), "tw-proxy");
  set_thread_log_rank(config_.rank);
  IdlePacer::prepare_thread();
  if (options_.stays_near) stay_near(transport_.near_processors(), "the proxy");
  try {
    serve();
  } catch (const ProxyFaultError& e) {
    report(e.fault);
  } catch (const std::exception& e) {
    report({ProxyFaultKind::died, std::nullopt,
            fmt::format("the proxy of rank {} died: {}", config_.rank.value, e.what())});
  } catch (...) {
    report({ProxyFaultKind::died, std::nullopt,
            fmt::format("the proxy of rank {} died of an unknown exception", config_.rank.value)});
  }
  discard_until_stop();
  is_running_.store(false, std::memory_order_release);
}

void Proxy::serve() {
  IdlePacer pacer(options_.idle);
  while (!must_stop()) {
    rounds_.add(1);
    if (engine_.step()) {
      pacer.worked();
    } else if (pacer.pause(transport_.idle_hint())) {
      counters_.naps.add(1);
      look_at_devices();
    }
  }
}

// Of a device that has failed nothing comes, so there is time for it.
void Proxy::look_at_devices() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return;
  next_look_ = now + kBetweenLooks;
  try {
    transport_.look_at_devices(config_.leaving_time);
  } catch (const Error& error) {
    throw ProxyFaultError(ProxyFaultKind::failed_device, std::nullopt, error.kind(),
                          {.what = error.what(), .where = fmt::format("proxy of rank {}", config_.rank.value)});
  }
}

void Proxy::discard_until_stop() noexcept {
  IdlePacer pacer(options_.idle);
  while (!must_stop()) {
    rounds_.add(1);
    if (engine_.discard()) {
      pacer.worked();
    } else {
      pacer.pause();
    }
  }
}

void Proxy::report(const ProxyFault& fault) noexcept {
  has_fault_.store(true, std::memory_order_release);
  log_error("{}: {}", to_string(fault.kind), fault.text);
  if (!options_.on_fault) return;
  try {
    options_.on_fault(fault);
  } catch (const std::exception& e) {
    log_error("the fault could not be passed on: {}", e.what());
  } catch (...) {
    log_error("the fault could not be passed on");
  }
}

}  // namespace tilewire

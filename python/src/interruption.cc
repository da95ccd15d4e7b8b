#include "python/src/interruption.h"

#include <nanobind/nanobind.h>
#include <sys/syscall.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace nb = nanobind;

namespace tilewire {
namespace {

constexpr std::chrono::milliseconds kSignalPoll{50};

// A thread that runs one piece of work at a time. It is never ended: at the end of the process it sleeps.
class Worker {
 public:
  Worker() {
    try {
      std::thread([this] { loop(); }).detach();
    } catch (const std::system_error& error) {
      throw Error(ErrorKind::resource, {.what = "no thread for the work that Ctrl-C may interrupt",
                                        .values = error.what(),
                                        .advice = "raise the limit on threads (ulimit -u)"});
    }
  }

  void start(const std::function<void()>& work) {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    failure_ = nullptr;
    changed_.notify_all();
  }

  bool wait_done(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, at_most, [this] { return work_ == nullptr; });
  }

  std::exception_ptr take_failure() {
    const std::lock_guard lock(mutex_);
    return std::exchange(failure_, nullptr);
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return work_ != nullptr; });
      lock.unlock();
      std::exception_ptr failure;
      try {
        (*work_)();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failure_ = std::move(failure);
      work_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr failure_;
};

// The idle workers of this process, guarded by the GIL. A forked child has none of its parent's.
std::vector<Worker*>& idle_workers() {
  static auto* workers = new std::vector<Worker*>;
  static pid_t owner = ::getpid();
  if (owner != ::getpid()) {
    owner = ::getpid();
    workers->clear();
  }
  return *workers;
}

// A worker of one's own for a while. A signal handler that calls Tilewire in its turn gets another one.
class Lease {
 public:
  Lease() {
    std::vector<Worker*>& idle = idle_workers();
    if (idle.empty()) idle.push_back(new Worker);
    worker_ = idle.back();
    idle.pop_back();
  }
  ~Lease() { idle_workers().push_back(worker_); }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Worker& operator*() const { return *worker_; }

 private:
  Worker* worker_;
};

bool is_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

bool wait_without_gil(Worker& worker) {
  const nb::gil_scoped_release release;
  return worker.wait_done(kSignalPoll);
}

}  // namespace

void run_interruptible(const std::function<void()>& work, const std::function<void()>& interrupt) {
  if (!is_main_thread()) {
    const nb::gil_scoped_release release;
    work();
    return;
  }
  const Lease lease;
  Worker& worker = *lease;
  worker.start(work);
  bool is_interrupted = false;
  while (!wait_without_gil(worker)) {
    // Once a handler has raised, its exception stays set and no handler runs any more.
    if (is_interrupted || PyErr_CheckSignals() == 0) continue;
    is_interrupted = true;
    const nb::gil_scoped_release release;
    interrupt();
  }
  const std::exception_ptr failure = worker.take_failure();
  if (is_interrupted) nb::raise_python_error();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tilewire

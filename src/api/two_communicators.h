// Two communicators in one process, for tests of the public interface: each rank is a thread and a node of its own.
#pragma once

#include <tilewire/communicator.h>
#include <tilewire/error.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace tilewire {

// A launcher's store within the process.
class Store {
 public:
  StoreFunctions functions() {
    return {.set = [this](const std::string& key, const std::string& value) { set(key, value); },
            .get = [this](const std::string& key, double timeout_s) { return get(key, timeout_s); }};
  }

 private:
  void set(const std::string& key, const std::string& value) {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::string get(const std::string& key, double timeout_s) {
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(timeout_s);
    if (!changed_.wait_for(lock, limit, [&] { return values_.count(key) != 0; })) {
      throw std::runtime_error("no key " + key);
    }
    return values_[key];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

struct Ending {
  ErrorKind kind = ErrorKind::internal;
  std::string text{};  // "" where the rank's body returned
};

// Runs `body` on both ranks, rank 1 on the caller's thread, each with a communicator that lives in a scope of its own.
inline std::array<Ending, 2> run_two(const std::function<void(Communicator&)>& body,
                                     const std::function<void(Options&)>& change = {}) {
  Store store;
  std::array<Ending, 2> endings;
  const auto run_rank = [&](int rank) {
    Ending& ending = endings[static_cast<size_t>(rank)];
    try {
      Options options;
      options.rank = rank;
      options.world_size = 2;
      options.layout = "1,1";
      options.deadline_s = 20;
      options.connect_deadline_s = 20;
      options.arena_reserve_bytes = 64 << 20;
      options.user_arena_reserve_bytes = 64 << 20;
      options.arena_initial_bytes = 1 << 20;
      if (change) change(options);
      const StoreFunctions functions = store.functions();
      Communicator comm = Communicator::init(options, &functions);
      body(comm);
    } catch (const Error& error) {
      ending = {error.kind(), error.what()};
    } catch (const std::exception& error) {
      ending.text = error.what();
    }
  };
  std::thread other(run_rank, 0);
  run_rank(1);
  other.join();
  return endings;
}

}  // namespace tilewire

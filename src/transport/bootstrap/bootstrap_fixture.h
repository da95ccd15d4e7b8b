// What the tests of this folder share: ranks as threads, a store in memory, free ports.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tilewire/error.h>

#include "transport/bootstrap/control.h"
#include "transport/bootstrap/held_port.h"
#include "transport/bootstrap/rendezvous.h"
#include "transport/bootstrap/socket.h"

namespace tilewire {

using namespace std::chrono_literals;

class MemoryStore : public KeyValueStore {
 public:
  void set(const std::string& key, const Bytes& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  Bytes get(const std::string& key, SteadyTime deadline) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_until(lock, deadline, [&] { return values_.count(key) != 0; })) {
      throw Error(ErrorKind::deadline, {.what = "the store has no " + key});
    }
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes> values_;
};

// What a rank says of a call.
inline CallText advised(std::string text, std::string advice) {
  CallText said = plain_text(std::move(text));
  said.advice = std::move(advice);
  return said;
}
inline CallTextRef said(std::string text) { return std::make_shared<CallText>(plain_text(std::move(text))); }

// It stays held until the process ends.
inline std::string free_address() {
  static std::mutex mutex;
  static std::deque<HeldPort> ports;
  const std::lock_guard lock(mutex);
  return HostPort{"127.0.0.1", static_cast<uint16_t>(ports.emplace_back().number())}.to_text();
}

inline RendezvousOptions rank_options(int rank, int world_size, const std::string& host_port) {
  RendezvousOptions options;
  options.rank = Rank(rank);
  options.world_size = world_size;
  options.host_port = host_port;
  options.secret = "a secret of this test";
  options.library_version = "1.0";
  options.agreed_options = "window=4\nchunk_bytes=1024\n";
  options.address.is_single_host = true;
  options.connect_deadline = 40s;
  options.settle = 500ms;
  return options;
}

struct Failure {
  bool has_failed = false;
  ErrorKind kind = ErrorKind::internal;
  std::string text;

  bool names(const std::string& part) const { return text.find(part) != std::string::npos; }
};

inline Failure failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return {true, error.kind(), error.what()};
  } catch (const std::exception& error) {
    return {true, ErrorKind::internal, std::string("not a tilewire error: ") + error.what()};
  }
  return {};
}

// One thread a rank; what each threw, by rank.
inline std::vector<Failure> run_ranks(int world_size, const std::function<void(int rank)>& body) {
  std::vector<Failure> failures(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] { failures[static_cast<size_t>(rank)] = failure_of([&] { body(rank); }); });
  }
  for (std::thread& thread : threads) thread.join();
  return failures;
}

inline size_t open_descriptors() {
  const std::filesystem::directory_iterator begin("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

inline size_t threads_of_process() {
  const std::filesystem::directory_iterator begin("/proc/self/task");
  return static_cast<size_t>(std::distance(begin, std::filesystem::directory_iterator()));
}

}  // namespace tilewire

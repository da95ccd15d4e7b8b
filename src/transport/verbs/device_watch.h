// What a device says by itself: that it, one of its completion queues or its port has failed. No request may be under way
// that would fail by it, and none may ever complete.
//
// Thread-safety: one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "transport/verbs/port.h"

namespace tilewire::verbs {

class DeviceWatch {
 public:
  // Keeps both by reference. Of a library without the functions it sees nothing.
  DeviceWatch(const Verbs& verbs, const Port& port);

  // Takes what has been said since the last look; a system call, which never blocks. Throws Error(unavailable) with the
  // port for what no queue recovers from, and for a port that has been down for `patience`: links come back. What a queue
  // pair fails by is told by its completions.
  void look(std::chrono::nanoseconds patience, const std::string& where);

 private:
  using Time = std::chrono::steady_clock::time_point;

  void take(const abi::AsyncEvent& event, const std::string& where);
  [[noreturn]] void fail(const char* what, std::string values, const std::string& where) const;

  const Verbs& verbs_;
  const Port& port_;
  bool is_on_ = false;
  std::optional<Time> down_since_{};
};

}  // namespace tilewire::verbs

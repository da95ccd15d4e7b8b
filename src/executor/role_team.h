// The threads of one rank. Every role of a call is a loop that may block, so each gets a thread of its own; the threads
// stay from call to call and sleep in between.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/ids.h"

namespace tilewire {

// One role of a call: a loop that ends by itself, since each of its waits has a deadline.
struct TeamRole {
  std::string name;  // the thread is called "tw<rank>/<name>" while it runs, cut to the 15 characters that Linux keeps
  std::function<void()> body;
};

// Called by the thread of the first role that threw, before anyone is told; raises the abort word so that the other
// roles leave too. Called at most once a run. An exception that it throws is logged and dropped.
using OnRoleFailure = std::function<void(const std::exception_ptr& failure)>;

// start() and join() are for one thread at a time; the team itself is not shared between threads.
class RoleTeam {
 public:
  // `threads` are made at once; start() makes more when a call has more roles. Throws Error(resource) when the system
  // gives no more threads.
  explicit RoleTeam(Rank rank, int threads = 0);
  // Waits for roles still running (their failure is logged), then ends the threads.
  ~RoleTeam();
  RoleTeam(const RoleTeam&) = delete;
  RoleTeam& operator=(const RoleTeam&) = delete;

  // Starts all roles, each on a thread of its own, and returns. When a thread cannot be made it throws Error(resource)
  // and no role has started. Throws Error(internal) while roles of an earlier start() have not been joined.
  void start(std::span<const TeamRole> roles, OnRoleFailure on_failure = {});
  // Waits until all roles have returned, however long that takes, and rethrows the first failure. The others were
  // logged.
  void join();
  // start() and join().
  void run(std::span<const TeamRole> roles, OnRoleFailure on_failure = {});

  int threads() const { return static_cast<int>(members_.size()); }

 private:
  struct Member {
    std::condition_variable wake;
    TeamRole role;  // under mutex_ until has_role is seen; then the member's own until it counts itself out
    bool has_role = false;
    std::thread thread;
  };

  void grow(int threads);
  void live(Member& member);
  void perform(const TeamRole& role);
  void keep_failure(const std::string& role, const std::exception_ptr& failure);
  std::exception_ptr wait_for_all();
  void end_threads();

  Rank rank_;
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::vector<std::unique_ptr<Member>> members_;
  OnRoleFailure on_failure_;
  std::exception_ptr failure_;
  int running_ = 0;
  bool started_ = false;
  bool ending_ = false;
};

}  // namespace tilewire

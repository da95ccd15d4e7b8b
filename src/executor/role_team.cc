#include "executor/role_team.h"

#include <pthread.h>

#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/signals_blocked.h"

namespace tilewire {
namespace {

constexpr size_t kThreadNameChars = 15;  // what Linux keeps

std::string text_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

void name_this_thread(Rank rank, const std::string& role) {
  const std::string name = fmt::format("tw{}/{}", rank, role).substr(0, kThreadNameChars);
  pthread_setname_np(pthread_self(), name.c_str());
}

}  // namespace

RoleTeam::RoleTeam(Rank rank, int threads) : rank_(rank) {
  try {
    grow(threads);
  } catch (...) {
    end_threads();
    throw;
  }
}

RoleTeam::~RoleTeam() {
  if (started_) {
    if (const std::exception_ptr failure = wait_for_all()) {
      log_warn("a role failed and nobody asked: {}", text_of(failure));
    }
  }
  end_threads();
}

void RoleTeam::grow(int threads) {
  const SignalsBlocked blocked;
  while (this->threads() < threads) {
    auto member = std::make_unique<Member>();
    Member& its = *member;
    members_.reserve(members_.size() + 1);
    try {
      its.thread = std::thread([this, &its] { live(its); });
    } catch (const std::system_error& error) {
      throw Error(ErrorKind::resource,
                  {.what = "cannot make a thread for a role",
                   .where = fmt::format("rank {}", rank_),
                   .values = fmt::format("threads = {}, wanted = {}: {}", this->threads(), threads, error.what()),
                   .advice = "raise the limit on processes (ulimit -u, pids of the container) or set fewer workers"});
    }
    members_.push_back(std::move(member));
  }
}

void RoleTeam::start(std::span<const TeamRole> roles, OnRoleFailure on_failure) {
  TILEWIRE_CHECK(!started_, ErrorKind::internal, "roles of rank {} are still running", rank_);
  grow(static_cast<int>(roles.size()));
  std::lock_guard lock(mutex_);
  on_failure_ = std::move(on_failure);
  failure_ = nullptr;
  running_ = static_cast<int>(roles.size());
  started_ = true;
  for (size_t i = 0; i < roles.size(); ++i) {
    members_[i]->role = roles[i];
    members_[i]->has_role = true;
    members_[i]->wake.notify_one();
  }
}

void RoleTeam::join() {
  if (const std::exception_ptr failure = wait_for_all()) std::rethrow_exception(failure);
}

void RoleTeam::run(std::span<const TeamRole> roles, OnRoleFailure on_failure) {
  start(roles, std::move(on_failure));
  join();
}

std::exception_ptr RoleTeam::wait_for_all() {
  std::unique_lock lock(mutex_);
  all_done_.wait(lock, [this] { return running_ == 0; });
  started_ = false;
  on_failure_ = {};
  return std::exchange(failure_, nullptr);
}

// The life of one thread: sleep, play a role, sleep.
void RoleTeam::live(Member& member) {
  set_thread_log_rank(rank_);
  std::unique_lock lock(mutex_);
  for (;;) {
    member.wake.wait(lock, [&] { return member.has_role || ending_; });
    if (!member.has_role) return;
    lock.unlock();
    perform(member.role);
    member.role = {};  // what the role captured goes before anyone is told that it has ended
    lock.lock();
    member.has_role = false;
    if (--running_ == 0) all_done_.notify_all();
  }
}

void RoleTeam::perform(const TeamRole& role) {
  name_this_thread(rank_, role.name);
  try {
    role.body();
  } catch (...) {
    keep_failure(role.name, std::current_exception());
  }
}

void RoleTeam::keep_failure(const std::string& role, const std::exception_ptr& failure) {
  {
    std::lock_guard lock(mutex_);
    if (failure_ != nullptr) {
      log_info("role {} left too: {}", role, text_of(failure));
      return;
    }
    failure_ = failure;
  }
  // Nobody changes on_failure_ before this role counts itself out.
  if (!on_failure_) return;
  try {
    on_failure_(failure);
  } catch (...) {
    log_error("telling the other roles that {} failed has failed: {}", role, text_of(std::current_exception()));
  }
}

void RoleTeam::end_threads() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    for (const auto& member : members_) member->wake.notify_one();
  }
  for (const auto& member : members_) member->thread.join();
}

}  // namespace tilewire

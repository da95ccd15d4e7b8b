// Tests only: a forked process that runs a function and reports how it ended.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>

namespace tilewire {

class ForkedChild {
 public:
  // Forks; the child exits with what `body` returns, or 99 when it throws. It dies by itself after a minute.
  explicit ForkedChild(const std::function<int()>& body) : pid_(fork()) {
    if (pid_ != 0) return;
    alarm(60);
    int code = 99;
    try {
      code = body();
    } catch (...) {
    }
    _exit(code);
  }
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;
  ~ForkedChild() {
    if (pid_ > 0) {
      kill_now();
      wait();
    }
  }

  pid_t pid() const { return pid_; }
  void kill_now() const { kill(pid_, SIGKILL); }
  // The exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

}  // namespace tilewire

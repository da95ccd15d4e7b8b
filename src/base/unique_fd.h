// A file descriptor with one owner, closed when the owner goes.
//
// Thread-safety: as an int; two threads must not use one object at the same time.
#pragma once

#include <unistd.h>

#include <utility>

namespace tilewire {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

  // Gives the descriptor up; the caller closes it.
  int release() { return std::exchange(fd_, -1); }

  // Closes what is held and takes `fd`. On Linux close() frees the number even when it reports EINTR, so it is not
  // repeated.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

}  // namespace tilewire

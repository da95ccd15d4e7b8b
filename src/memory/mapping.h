// A mapped address range with one owner, unmapped when the owner goes.
//
// Thread-safety: as a pointer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace tilewire {

class Mapping {
 public:
  Mapping() = default;
  // Reserves address space that cannot be touched yet (mprotect opens parts of it). Both functions throw
  // Error(resource) with the bytes, the limit and the options; `where` and `what` name the use: "rank 3, arena", "own
  // arena".
  static Mapping reserve(int64_t bytes, const std::string& where, const std::string& what);
  // Maps all `bytes` of a memory file, shared, for reading and writing.
  static Mapping share(int fd, int64_t bytes, const std::string& where, const std::string& what);

  Mapping(Mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      base_ = std::exchange(other.base_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() { reset(); }

  std::byte* base() const { return base_; }
  int64_t bytes() const { return bytes_; }
  void reset() noexcept;

 private:
  Mapping(std::byte* base, int64_t bytes) : base_(base), bytes_(bytes) {}
  static Mapping map(int fd, int64_t bytes, const std::string& where, const std::string& what);

  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tilewire

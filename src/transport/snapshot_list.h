// A list that is read all the time and replaced now and then: readers take no lock and never wait.
//
// Thread-safety: now() from any thread, also while replace() runs; replace() by one thread at a time.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tilewire {

template <class T>
class SnapshotList {
 public:
  // What was put there last; it stays as it is until this object goes.
  std::span<const T> now() const {
    const std::vector<T>* list = now_.load(std::memory_order_acquire);
    return list != nullptr ? std::span<const T>(*list) : std::span<const T>();
  }
  void replace(std::vector<T> next) {
    kept_.push_back(std::make_unique<const std::vector<T>>(std::move(next)));
    now_.store(kept_.back().get(), std::memory_order_release);
  }

 private:
  std::atomic<const std::vector<T>*> now_ = nullptr;
  std::vector<std::unique_ptr<const std::vector<T>>> kept_;  // all there were: a reader may still be in one
};

}  // namespace tilewire

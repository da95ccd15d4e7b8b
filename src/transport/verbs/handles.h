// Owners of what libibverbs hands out: each frees its handle when it goes, and a moved-from or default one holds
// nothing. Declare them in the order device, protection domain, memory and queues, so that they go in the other order.
//
// Thread-safety: as a pointer.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/verbs/table.h"

namespace tilewire::verbs {

// `kFree` is the member of the table that frees a handle. What it answers is of no use: there is no one to tell, and the
// kernel frees everything with the process.
template <class T, int (*Verbs::*kFree)(T*)>
class Handle {
 public:
  Handle() = default;
  Handle(const Verbs& verbs, T* handle) : verbs_(&verbs), handle_(handle) {}
  Handle(Handle&& other) noexcept : verbs_(other.verbs_), handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      verbs_ = other.verbs_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  ~Handle() { reset(); }

  T* get() const { return handle_; }
  T* operator->() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

  void reset() {
    if (T* handle = std::exchange(handle_, nullptr)) (verbs_->*kFree)(handle);
  }

 private:
  const Verbs* verbs_ = nullptr;
  T* handle_ = nullptr;
};

using Context = Handle<abi::Context, &Verbs::close_device>;
using Pd = Handle<abi::Pd, &Verbs::dealloc_pd>;
using Mr = Handle<abi::Mr, &Verbs::dereg_mr>;
using Cq = Handle<abi::Cq, &Verbs::destroy_cq>;
using Qp = Handle<abi::Qp, &Verbs::destroy_qp>;
using Ah = Handle<abi::Ah, &Verbs::destroy_ah>;

}  // namespace tilewire::verbs

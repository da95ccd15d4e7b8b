// What a Communicator owns: the session and one object of each operation.
#pragma once

#include <tilewire/communicator.h>

#include <atomic>
#include <exception>
#include <memory>

#include "executor/session.h"
#include "ops/op_list.h"

#if defined(TILEWIRE_HAS_CUDA)
#include "ops/device_op_list.h"
#endif

namespace tilewire {

class Communicator::Parts {
 public:
  explicit Parts(std::unique_ptr<Session> joined)
      : session(std::move(joined)),
        ops_(*session),
#if defined(TILEWIRE_HAS_CUDA)
        device_ops_(*session),
#endif
        exceptions_at_birth_(std::uncaught_exceptions()) {
  }
  // Where an exception unwinds the scope of the communicator, the others may be in a call that this rank will never
  // make: they are told, instead of left silently.
  ~Parts() {
    if (std::uncaught_exceptions() > exceptions_at_birth_) session->tell_left_by_exception();
    session->close();  // before what kernels use goes with the objects of the operations
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  template <class Op>
  OpCalls<Op>& op() {
    return ops_.get<Op>();
  }
#if defined(TILEWIRE_HAS_CUDA)
  template <class DeviceOp>
  DeviceCalls<DeviceOp>& device_op() {
    return device_ops_.get<DeviceOp>();
  }
#endif

  std::unique_ptr<Session> session;

 private:
  OpObjects<Ops> ops_;
#if defined(TILEWIRE_HAS_CUDA)
  DeviceOpObjects<DeviceOps> device_ops_;
#endif
  int exceptions_at_birth_;
};

// Fills in what the options leave open. A job of one rank needs no launcher and meets itself on a free port.
// Throws Error(invalid_argument) where something is lacking.
Options with_launcher(Options options, bool has_store);

// With what a session of GPU ranks needs, where there are some. `options` are those of with_launcher().
SessionSetup session_setup(Options options, const std::atomic<bool>* is_cancelled);

WorkEvent to_work_event(const TraceEvent& event);

}  // namespace tilewire

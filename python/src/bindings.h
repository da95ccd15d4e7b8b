// What the files of the extension module share: the communicator as Python holds it, and what each file adds.
#pragma once

#include <nanobind/nanobind.h>
#include <tilewire/communicator.h>

#include <memory>

#include "python/src/ops.h"

namespace tilewire {

// Shared by the Python object, its arena blocks and its handles. Dropped without the GIL: closing takes a moment.
class CommunicatorHandle {
 public:
  explicit CommunicatorHandle(Communicator comm) : comm_(std::make_shared<Communicator>(std::move(comm))) {}
  ~CommunicatorHandle() {
    const nanobind::gil_scoped_release release;
    comm_.reset();
  }
  CommunicatorHandle(CommunicatorHandle&&) = default;

  Communicator& operator*() const { return *comm_; }
  Communicator* operator->() const { return comm_.get(); }
  const std::shared_ptr<Communicator>& shared() const { return comm_; }
  // In a forked child: the threads behind it are not here, so it cannot be closed. What the process has of it stays.
  void forget() { new std::shared_ptr<Communicator>(comm_); }

 private:
  std::shared_ptr<Communicator> comm_;
};

// An event as the rows that tilewire.trace_events reads.
nanobind::dict to_dict(const WorkEvent& event);

void add_communicator(nanobind::module_& m);
void add_call(nanobind::module_& m);  // what the operations share: before them
void add_foreign_array(nanobind::module_& m);

#define TILEWIRE_DECLARE_OP(name) void add_##name(nanobind::module_& m);
TILEWIRE_PYTHON_OPS(TILEWIRE_DECLARE_OP)
#undef TILEWIRE_DECLARE_OP

}  // namespace tilewire

// What the files of the extension module share: the communicator as Python holds it, and what each file adds.
#pragma once

#include <nanobind/nanobind.h>
#include <tilewire/communicator.h>

#include <functional>
#include <memory>
#include <string>

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
  CommunicatorHandle(const CommunicatorHandle&) = default;
  CommunicatorHandle& operator=(const CommunicatorHandle&) = delete;

  Communicator& operator*() const { return *comm_; }
  Communicator* operator->() const { return comm_.get(); }
  // Runs a part of the communicator that may block, with the GIL released: a call in flight that it waits for may need
  // Python. Ctrl-C ends the communicator on all ranks, so that nobody waits for this one.
  void run(const std::string& what, const std::function<void()>& work) const;
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

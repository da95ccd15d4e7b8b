// What a Communicator owns: the session and one object of each operation.
#pragma once

#include <tilewire/communicator.h>

#include <memory>

#include "executor/session.h"
#include "ops/op_list.h"

namespace tilewire {

class Communicator::Parts {
 public:
  explicit Parts(std::unique_ptr<Session> joined) : session(std::move(joined)), ops_(*session) {}

  template <class Op>
  OpCalls<Op>& op() {
    return ops_.get<Op>();
  }

  std::unique_ptr<Session> session;

 private:
  OpObjects<Ops> ops_;
};

WorkEvent to_work_event(const TraceEvent& event);

}  // namespace tilewire

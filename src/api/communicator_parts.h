// What a Communicator owns: the session and one operation object of each op.
#pragma once

#include <tilewire/communicator.h>

#include <memory>

#include "executor/session.h"
#include "ops/ag_gemm/ag_gemm.h"

namespace tilewire {

class Communicator::Parts {
 public:
  explicit Parts(std::unique_ptr<Session> joined) : session(std::move(joined)), ag_gemm(*session) {}

  std::unique_ptr<Session> session;
  ag_gemm::Operation ag_gemm;
};

WorkEvent to_work_event(const TraceEvent& event);

}  // namespace tilewire

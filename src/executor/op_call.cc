#include "executor/op_call.h"

namespace tilewire {

PlanContext plan_context(Session& session) {
  return {.topology = session.topology(),
          .me = session.rank(),
          .arena = session.arena().layout(),
          .machine = session.machine(),
          .workers = session.workers()};
}

void refuse_other_problem(const char* op, const std::string& problem, const std::string& fixed) {
  throw Error(ErrorKind::invalid_argument, {.what = "the operands do not fit the handle",
                                            .where = op,
                                            .values = problem,
                                            .limit = "made for " + fixed,
                                            .advice = "make a handle for these shapes"});
}

}  // namespace tilewire

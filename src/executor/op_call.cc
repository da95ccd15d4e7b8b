#include "executor/op_call.h"

#include <fmt/format.h>

namespace tilewire {

PlanContext plan_context(Session& session) {
  return {.topology = session.topology(),
          .me = session.rank(),
          .arena = session.arena().layout(),
          .machine = session.machine(),
          .workers = session.workers()};
}

std::string text_of_call(const char* op, const std::string& text) { return fmt::format("{} of {}", op, text); }

std::vector<int64_t> CountExchange::exchange(const char* what, int64_t mine, const std::string& description) {
  if (!has_begun_) call_.begin(text_of_call(op_, description));
  has_begun_ = true;
  return call_.exchange(what, mine);
}

void refuse_other_problem(const char* op, const std::string& problem, const std::string& fixed) {
  throw Error(ErrorKind::invalid_argument, {.what = "the operands do not fit the handle",
                                            .where = op,
                                            .values = problem,
                                            .limit = "made for " + fixed,
                                            .advice = "make a handle for these shapes"});
}

}  // namespace tilewire

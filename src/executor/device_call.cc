#include "executor/device_call.h"

namespace tilewire {

void refuse_capture(const char* op, const std::string& problem) {
  throw Error(ErrorKind::invalid_argument, {.what = "a call is captured in a graph that the ranks have not agreed on",
                                            .where = op,
                                            .values = problem,
                                            .limit = "what a first call does cannot be part of a graph",
                                            .advice = "make one such call on all ranks before the capture"});
}

}  // namespace tilewire

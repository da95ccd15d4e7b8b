#include "executor/call_cycle.h"

#include <fmt/format.h>

namespace tilewire {
PlanContext plan_context(Session& session) {
  return {.topology = session.topology(),
          .me = session.rank(),
          .arena = session.arena().layout(),
          .machine = session.machine(),
          .workers = session.workers()};
}

void CountExchange::begin(const char* what, const std::string& description) {
  if (call_ == nullptr) {
    throw Error(ErrorKind::invalid_argument, {.what = fmt::format("{} cannot be exchanged in a graph", what),
                                              .where = op_,
                                              .values = description,
                                              .limit = "",
                                              .advice = "say before the capture what each rank brings"});
  }
  if (!has_begun_) {
    call_->begin(std::make_shared<CallText>(CallText{.op = op_, .parts = {{description}}, .advice = advice_}));
  }
  has_begun_ = true;
}

std::vector<int64_t> CountExchange::exchange(const char* what, int64_t mine, const std::string& description) {
  begin(what, description);
  return call_->exchange(what, mine);
}

std::vector<std::vector<int64_t>> CountExchange::exchange_lists(const char* what, const std::vector<int64_t>& mine,
                                                                const std::string& description) {
  begin(what, description);
  return call_->exchange_lists(what, mine);
}

Error at_rank(const Error& error, Rank rank, const char* op) {
  ErrorParts parts = error.parts();
  if (parts.where.find("rank ") != std::string::npos) return error;
  parts.where = fmt::format("rank {}, {}", rank.value, parts.where.empty() ? op : parts.where);
  return {error.kind(), std::move(parts)};
}

void refuse_for_current_exception(Call& call, const char* op, const char* exchange, const char* advice) {
  const auto refuse = [&](const Error& error) {
    exchange == nullptr ? call.refuse(error) : call.refuse_in_exchange(exchange, error, advice);
  };
  const auto refused = [&](const Error& error) {
    Error placed = at_rank(error, call.rank(), op);
    refuse(placed);
    return placed;
  };
  try {
    throw;
  } catch (const Error& error) {
    throw refused(error);
  } catch (const std::bad_alloc&) {
    throw refused(Error(ErrorKind::resource, {.what = "there is no memory to prepare the call"}));
  } catch (const std::exception& error) {
    refuse(at_rank(Error(ErrorKind::invalid_argument, {.what = error.what()}), call.rank(), op));
    throw;
  }
}

void throw_no_result_memory(const char* op, int64_t bytes) {
  throw Error(ErrorKind::resource, {.what = "there is no memory for the results",
                                    .where = op,
                                    .values = fmt::format("{} bytes were asked for", bytes),
                                    .advice = "bring fewer rows or columns to a call, or free memory"});
}

void throw_no_make_results(const char* op) {
  throw Error(ErrorKind::invalid_argument, {.what = "nothing gives memory for the results",
                                            .where = op,
                                            .values = "make_results is an empty function, or calls one",
                                            .limit = "must give a matrix for each result"});
}

void refuse_other_problem(const char* op, const std::string& problem, const std::string& fixed) {
  throw Error(ErrorKind::invalid_argument, {.what = "the operands do not fit the handle",
                                            .where = op,
                                            .values = problem,
                                            .limit = "made for " + fixed,
                                            .advice = "make a handle for these shapes"});
}

}  // namespace tilewire

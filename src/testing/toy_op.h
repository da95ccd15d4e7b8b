// The smallest op there can be: it moves nothing, and its "result" is a matrix of the caller. For tests of what all ops
// do alike.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "executor/op_call.h"
#include "executor/op_program.h"
#include "schedule/call_roles.h"

namespace tilewire::toy {

struct Choice {
  int32_t number = 1;
  std::string text() const { return fmt::format("number {}", number); }
};
inline std::string to_json(const Choice& choice) { return fmt::format("{{\"number\": {}}}", choice.number); }

struct Problem {
  int64_t size = 0;  // of this rank, or of all ranks together where they are exchanged
  std::string text() const { return fmt::format("size {}", size); }
  friend bool operator==(const Problem&, const Problem&) = default;
};

struct Tables {
  Topology topology;
  Rank me;
};

struct Schedule {
  CallFrame frame;
};

// Nothing needs to be acquired, and the send ring is filled by nobody.
struct DrainRole {
  using Work = WorkBase;
  bool next(Work&) { return false; }
  Need need(const Work&, int32_t) const { return {}; }
  Publish publish(const Work&, int32_t) const { return {}; }
};
template <class Visit>
void for_each_role(const Schedule&, Cursors, Visit&& visit) {
  visit(AgentPlace{.role = "drain", .stage = kDrainStage}, DrainRole());
}
inline constexpr const char* kFamilyNames[kWordFamilies] = {};

struct Arguments {
  int64_t size = 0;
  bool exchanges = false;
  std::string plan_json{};
  std::function<void()> check{};                     // of this rank alone
  std::function<MatrixView(int64_t)> make_result{};  // gets the problem's size
};

struct Operands {
  MatrixView result;
};

struct Op {
  using Problem = toy::Problem;
  using Plan = PlanOf<Choice>;
  using Tables = toy::Tables;
  using Schedule = toy::Schedule;
  using Arguments = toy::Arguments;
  using Operands = toy::Operands;

  static constexpr const char* kName = "toy";
  static const char* exchanged(const Arguments& arguments) { return arguments.exchanges ? "sizes" : nullptr; }
  static void check(const Arguments& arguments, Session&) {
    if (arguments.check) arguments.check();
  }
  static Problem make_problem(const Arguments& arguments, Session&, CountExchange& counts) {
    if (!arguments.exchanges) return {arguments.size};
    const std::vector<int64_t> all = counts.exchange("sizes", arguments.size, "sizes that are exchanged");
    return {std::accumulate(all.begin(), all.end(), int64_t{0})};
  }
  static Plan make_plan(const Problem& problem, const std::string&, const PlanContext& context) {
    check_reserve(kName, problem.text(), problem.size, context);
    Plan plan;
    plan.half_bytes = problem.size;
    return plan;
  }
  static Tables make_tables(const Problem&, const Plan&, const PlanContext& context) {
    return {context.topology, context.me};
  }
  static Operands make_operands(const Arguments& arguments, const Problem& problem, Rank) {
    return {arguments.make_result ? arguments.make_result(problem.size) : MatrixView{}};
  }
  static std::vector<MatrixView> results(const Operands& operands) { return {operands.result}; }
  static int64_t result_bytes(const Problem& problem, Rank) { return problem.size; }
  static CallParts agreed(const Problem& problem, const Plan&) { return {{problem.text()}}; }
  static Schedule make_schedule(const Tables&, Epoch epoch, const Arguments&, Session& session) {
    return {session.frame(epoch)};
  }
  static Call::Program program(const Schedule& schedule, const Plan&, const Operands&, const Arguments&) {
    return make_program(schedule, Cursors{}, kFamilyNames,
                        [](RoleContext&, Ring) { return [](const WorkBase&) { return TraceEvent{}; }; });
  }
  static CallReport report(const Schedule&) { return {}; }
};

}  // namespace tilewire::toy

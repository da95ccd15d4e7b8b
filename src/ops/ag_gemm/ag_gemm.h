// The call: AllGather+GEMM on the ranks of a communicator. One Operation a communicator; it keeps the tables of the
// problems it has seen and knows what all ranks have agreed on.
#pragma once

#include <tilewire/matrix.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "executor/call.h"
#include "executor/session.h"
#include "ops/ag_gemm/host_executor.h"
#include "ops/ag_gemm/plan.h"
#include "ops/ag_gemm/problem.h"

namespace tilewire::ag_gemm {

// How many rows each rank brings.
struct Rows {
  enum class Policy {
    same,      // as many as this one
    given,     // `counts`, which is empty otherwise
    exchange,  // counts travel over the control connection: about one round trip a call, host only
  };
  Policy policy = Policy::same;
  std::vector<int64_t> counts;
};

struct Arguments {
  MatrixView a;               // [M_r, K], any strides
  std::vector<MatrixView> b;  // [K, N_w] each, any strides (a weight stored as [N, K] is a view with swapped strides)
  std::vector<const void*> bias;  // empty, or one a weight: N_w values of bias_dtype, or nullptr for none
  DataType bias_dtype = DataType::fp32;
  DataType out_dtype = DataType::bf16;
  Rows rows;
  bool wants_gathered = false;
  std::string plan_json;  // empty: the planner chooses
  TileStandIn stand_in;   // for tests and benchmarks

  // Called once the row counts are known, before anything is sent: gives memory for the results, [sum M_r, N_w] each
  // and, where wanted, [sum M_r, K]. What it throws refuses the call.
  struct Results {
    std::vector<MatrixView> out;
    MatrixView gathered;
  };
  std::function<Results(const Problem&)> make_results;
};

struct Report {
  Problem problem;
  Plan plan;
  double seconds = 0;
  int64_t copy_bytes = 0;     // into the own gathered buffer
  int64_t node_bytes = 0;     // to local peers, own shard and forwarded ones
  int64_t network_bytes = 0;  // payload given to the proxy
};

class Operation {
 public:
  explicit Operation(Session& session) : session_(session) {}

  // Blocks until the results are there and the arena may be used by the next call. Throws what section 7 of the
  // architecture page says; results are NaN after an abort and untouched after a refusal.
  // `fixed`: the problem of a handle, from which the arguments may not differ.
  Report run(const Arguments& arguments, const Problem* fixed = nullptr);
  // What a first call does before it sends anything: plan, agreement and memory. Collective.
  Plan agree(const Problem& problem, const std::string& plan_json);
  // The plan such a call would get, without a call and without any other rank.
  Plan plan(const Problem& problem) const { return make_plan(problem, context()); }
  PlanContext context() const;

 private:
  struct Prepared {
    Plan plan;
    std::unique_ptr<ScheduleTables> tables;
  };
  Problem make_problem(const Arguments& arguments, const std::vector<int64_t>& rows) const;
  Prepared& prepare(const Problem& problem, const std::string& plan_json);
  void agree(Call& call, const Problem& problem, const Plan& plan);
  void place_input(Schedule& schedule, const MatrixView& a) const;
  Report describe(const Problem& problem, const Prepared& prepared, const Schedule& schedule) const;

  Session& session_;
  std::map<std::string, Prepared> prepared_;  // by the whole problem and plan
  std::set<uint64_t> agreed_;                 // hashes of texts that all ranks have agreed on
};

}  // namespace tilewire::ag_gemm

#include <tilewire/all_gather_gemm.h>

#include "api/communicator_parts.h"
#include "api/plan_query.h"
#include "ops/ag_gemm/simulation.h"

namespace tilewire {
namespace {

ag_gemm::Rows to_rows(const AllGatherGemmArguments& a) {
  switch (a.rows_from) {
    case RowsFrom::same: return {ag_gemm::Rows::Policy::same, {}};
    case RowsFrom::list: return {ag_gemm::Rows::Policy::given, a.rows};
    case RowsFrom::exchange: return {ag_gemm::Rows::Policy::exchange, {}};
  }
  return {};
}

ag_gemm::Arguments to_arguments(const AllGatherGemmArguments& a) {
  ag_gemm::Arguments out{.a = a.a,
                         .b = a.b,
                         .bias = a.bias,
                         .bias_dtype = a.bias_dtype,
                         .out_dtype = a.out_dtype,
                         .rows = to_rows(a),
                         .wants_gathered = a.return_gathered,
                         .plan_json = a.plan_json,
                         .stand_in = {},
                         .make_results = {}};
  if (a.compute_stand_in) {
    out.stand_in = [stand_in = a.compute_stand_in, k = a.a.cols](const ag_gemm::TileWork& w) {
      stand_in(w.rows.rows(), w.columns.end - w.columns.begin, k);
    };
  }
  out.make_results = [&a](const ag_gemm::Problem& problem) {
    const AllGatherGemmResults results = a.make_results(problem.total_rows());
    return ag_gemm::Arguments::Results{results.out, results.gathered};
  };
  return out;
}

ag_gemm::Problem to_problem(const AllGatherGemm::Shape& s) {
  return {.rows = s.rows,
          .k = s.k,
          .dtype = s.dtype,
          .cols = s.cols,
          .out_dtype = s.out_dtype,
          .wants_gathered = s.return_gathered};
}

CallReport run(Communicator& comm, const AllGatherGemmArguments& arguments, const ag_gemm::Problem* fixed) {
  const ag_gemm::Report r = comm.parts().op<ag_gemm::Op>().run(to_arguments(arguments), fixed);
  return {.seconds = r.seconds,
          .predicted_s = r.plan.predicted_s,
          .copy_bytes = r.copy_bytes,
          .node_bytes = r.node_bytes,
          .network_bytes = r.network_bytes,
          .plan_json = to_json(r.plan.choice)};
}

}  // namespace

CallReport all_gather_matmul(Communicator& comm, const AllGatherGemmArguments& arguments) {
  return run(comm, arguments, nullptr);
}

AllGatherGemm::AllGatherGemm(Communicator& comm, Shape shape) : comm_(&comm), shape_(std::move(shape)) {
  const ag_gemm::Plan plan = comm.parts().op<ag_gemm::Op>().agree(to_problem(shape_), shape_.plan_json);
  plan_json_ = to_json(plan.choice);
  explanation_ = plan.explain();
}

CallReport AllGatherGemm::operator()(const AllGatherGemmArguments& arguments) const {
  AllGatherGemmArguments fixed = arguments;
  fixed.rows_from = RowsFrom::list;
  fixed.rows = shape_.rows;
  fixed.plan_json = plan_json_;
  fixed.return_gathered = shape_.return_gathered;
  fixed.out_dtype = shape_.out_dtype;
  const ag_gemm::Problem problem = to_problem(shape_);
  return run(*comm_, fixed, &problem);
}

PlanAnswer plan_all_gather_matmul(const PlanQuery& query) {
  const PlanSite site(query);
  const ag_gemm::Problem problem = to_problem(query.shape);
  const ag_gemm::Plan plan = ag_gemm::plan_of(problem, query.shape.plan_json, site.context());
  return plan_answer(plan,
                     ag_gemm::simulate(problem, plan.choice, site.topology(), site.context(), query.wants_timeline));
}

}  // namespace tilewire

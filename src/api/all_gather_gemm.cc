#include <tilewire/all_gather_gemm.h>

#include "api/op_front.h"
#include "ops/ag_gemm/simulation.h"

namespace tilewire {
namespace {

ag_gemm::Arguments to_arguments(const AllGatherGemmArguments& a) {
  ag_gemm::Arguments out;
  static_cast<MatmulOperands&>(out) = {.a = a.a, .b = a.b, .bias = a.bias, .bias_dtype = a.bias_dtype};
  out.out_dtype = a.out_dtype;
  out.rows = a.rows;
  out.wants_gathered = a.return_gathered;
  out.plan_json = a.plan_json;
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

}  // namespace

CallReport all_gather_matmul(Communicator& comm, const AllGatherGemmArguments& arguments) {
  return run_op<ag_gemm::Op>(comm, to_arguments(arguments));
}

AllGatherGemm::AllGatherGemm(Communicator& comm, Shape shape) : comm_(&comm), shape_(std::move(shape)) {
  const HandlePlan plan = agree_op<ag_gemm::Op>(comm, to_problem(shape_), shape_.plan_json);
  plan_json_ = plan.json;
  explanation_ = plan.explanation;
}

CallReport AllGatherGemm::operator()(const AllGatherGemmArguments& arguments) const {
  AllGatherGemmArguments fixed = with_handle(arguments, shape_, plan_json_);
  fixed.return_gathered = shape_.return_gathered;
  fixed.out_dtype = shape_.out_dtype;
  const ag_gemm::Problem problem = to_problem(shape_);
  return run_op<ag_gemm::Op>(*comm_, to_arguments(fixed), &problem);
}

PlanAnswer plan_all_gather_matmul(const AllGatherGemm::Query& query) {
  return plan_op<ag_gemm::Op>(query, to_problem(query.shape), query.shape.plan_json);
}

}  // namespace tilewire

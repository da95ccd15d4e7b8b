#include <tilewire/all_gather_gemm.h>

#include "api/op_front.h"
#include "ops/ag_gemm/device_op.h"
#include "ops/ag_gemm/device_plan.h"
#include "ops/ag_gemm/model.h"

namespace tilewire {
namespace {

struct Front {
  using Op = ag_gemm::Op;
  using DeviceOp = ag_gemm::DeviceOp;
  using GpuPlan = ag_gemm::FusedPlan;
  using Arguments = AllGatherGemmArguments;
  using Shape = AllGatherGemmShape;

  static ag_gemm::Arguments to_op(const Arguments& a, Rank) {
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
  static ag_gemm::Problem to_problem(const Shape& s) {
    return {.rows = s.rows,
            .k = s.k,
            .dtype = s.dtype,
            .cols = s.cols,
            .out_dtype = s.out_dtype,
            .wants_gathered = s.return_gathered};
  }
  static void settle(Arguments& arguments, const Shape& shape) {
    arguments.rows = {RowCounts::From::list, shape.rows};
    arguments.return_gathered = shape.return_gathered;
    arguments.out_dtype = shape.out_dtype;
  }
};

}  // namespace

CallReport all_gather_matmul(Communicator& comm, const AllGatherGemmArguments& arguments) {
  return run_op<Front>(comm, arguments);
}

CallReport all_gather_matmul(Communicator& comm, const AllGatherGemmArguments& arguments, void* stream) {
  return run_device_op<Front>(comm, arguments, stream);
}

AllGatherGemm::AllGatherGemm(Communicator& comm, const Shape& shape)
    : OpHandle(comm, shape, agree_op<Front>(comm, shape)) {}

CallReport AllGatherGemm::operator()(const AllGatherGemmArguments& arguments) const {
  return run_handle<Front>(*this, arguments);
}

CallReport AllGatherGemm::operator()(const AllGatherGemmArguments& arguments, void* stream) const {
  return run_device_handle<Front>(*this, arguments, stream);
}

PlanAnswer plan_all_gather_matmul(const AllGatherGemm::Query& query) { return plan_op<Front>(query); }

}  // namespace tilewire

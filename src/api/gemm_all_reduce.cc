#include <tilewire/gemm_all_reduce.h>

#include "api/reduction_front.h"
#include "ops/gemm_ar/device_op.h"
#include "ops/gemm_ar/device_plan.h"
#include "ops/gemm_ar/gemm_ar.h"
#include "ops/gemm_ar/model.h"

namespace tilewire {
namespace {

struct AllReduceFront {
  using Op = gemm_ar::Op;
  using DeviceOp = gemm_ar::DeviceOp;
  using GpuPlan = gemm_ar::FusedPlan;
  using Arguments = GemmAllReduceArguments;
  using Shape = GemmAllReduceShape;

  static gemm_ar::Arguments to_op(const Arguments& a, Rank) {
    gemm_ar::Arguments out;
    static_cast<ReductionArguments&>(out) = to_reduction(a);
    out.make_results = [&a](const gemm_ar::Problem& problem) { return a.make_results(problem.m); };
    return out;
  }
  static gemm_ar::Problem to_problem(const Shape& s) {
    return {.m = s.m,
            .n = s.n,
            .dtype = s.dtype,
            .wire_dtype = s.wire_dtype.value_or(s.dtype),
            .out_dtype = s.out_dtype,
            .has_bias = s.has_bias,
            .has_residual = s.has_residual,
            .k = s.k};
  }
  static void settle(Arguments& arguments, const Shape& shape) {
    arguments.out_dtype = shape.out_dtype;
    arguments.wire_dtype = shape.wire_dtype;
  }
};

}  // namespace

CallReport matmul_all_reduce(Communicator& comm, const GemmAllReduceArguments& arguments) {
  return run_op<AllReduceFront>(comm, arguments);
}

CallReport matmul_all_reduce(Communicator& comm, const GemmAllReduceArguments& arguments, void* stream) {
  return run_device_op<AllReduceFront>(comm, arguments, stream);
}

GemmAllReduce::GemmAllReduce(Communicator& comm, const Shape& shape)
    : OpHandle(comm, shape, agree_op<AllReduceFront>(comm, shape)) {}

CallReport GemmAllReduce::operator()(const GemmAllReduceArguments& arguments) const {
  return run_handle<AllReduceFront>(*this, arguments);
}

CallReport GemmAllReduce::operator()(const GemmAllReduceArguments& arguments, void* stream) const {
  return run_device_handle<AllReduceFront>(*this, arguments, stream);
}

PlanAnswer plan_matmul_all_reduce(const GemmAllReduce::Query& query) { return plan_op<AllReduceFront>(query); }

}  // namespace tilewire

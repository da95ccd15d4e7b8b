#include <tilewire/gemm_reduce_scatter.h>

#include "api/reduction_front.h"
#include "ops/gemm_rs/device_op.h"
#include "ops/gemm_rs/device_plan.h"
#include "ops/gemm_rs/gemm_rs.h"
#include "ops/gemm_rs/model.h"

namespace tilewire {
namespace {

struct ReduceScatterFront {
  using Op = gemm_rs::Op;
  using DeviceOp = gemm_rs::DeviceOp;
  using GpuPlan = gemm_rs::FusedPlan;
  using Arguments = GemmReduceScatterArguments;
  using Shape = GemmReduceScatterShape;

  static gemm_rs::Arguments to_op(const Arguments& a, Rank me) {
    gemm_rs::Arguments out;
    static_cast<ReductionArguments&>(out) = to_reduction(a);
    out.rows = a.rows;
    out.make_results = [&a, me](const gemm_rs::Problem& problem) {
      return a.make_results(problem.rows[static_cast<size_t>(me.value)]);
    };
    return out;
  }
  static gemm_rs::Problem to_problem(const Shape& s) {
    return {.rows = s.rows,
            .n = s.n,
            .dtype = s.dtype,
            .wire_dtype = s.wire_dtype.value_or(s.dtype),
            .k = s.k,
            .out_dtype = s.out_dtype};
  }
  static void settle(Arguments& arguments, const Shape& shape) {
    arguments.rows = {RowCounts::From::list, shape.rows};
    arguments.out_dtype = shape.out_dtype;
    arguments.wire_dtype = shape.wire_dtype;
  }
};

}  // namespace

CallReport matmul_reduce_scatter(Communicator& comm, const GemmReduceScatterArguments& arguments) {
  return run_op<ReduceScatterFront>(comm, arguments);
}

CallReport matmul_reduce_scatter(Communicator& comm, const GemmReduceScatterArguments& arguments, void* stream) {
  return run_device_op<ReduceScatterFront>(comm, arguments, stream);
}

GemmReduceScatter::GemmReduceScatter(Communicator& comm, const Shape& shape)
    : OpHandle(comm, shape, agree_op<ReduceScatterFront>(comm, shape)) {}

CallReport GemmReduceScatter::operator()(const GemmReduceScatterArguments& arguments) const {
  return run_handle<ReduceScatterFront>(*this, arguments);
}

CallReport GemmReduceScatter::operator()(const GemmReduceScatterArguments& arguments, void* stream) const {
  return run_device_handle<ReduceScatterFront>(*this, arguments, stream);
}

PlanAnswer plan_matmul_reduce_scatter(const GemmReduceScatter::Query& query) {
  return plan_op<ReduceScatterFront>(query);
}

}  // namespace tilewire

#include <tilewire/moe_dispatch_gemm.h>

#include "api/op_front.h"
#include "ops/moe_dispatch/device_op.h"
#include "ops/moe_dispatch/device_plan.h"
#include "ops/moe_dispatch/moe_dispatch.h"
#include "ops/moe_dispatch/model.h"

namespace tilewire {
namespace {

struct MoeDispatchFront {
  using Op = moe_dispatch::Op;
  using DeviceOp = moe_dispatch::DeviceOp;
  using GpuPlan = moe_dispatch::FusedPlan;
  using Arguments = MoeDispatchArguments;
  using Shape = MoeDispatchShape;

  static moe_dispatch::Arguments to_op(const Arguments& a, Rank) {
    moe_dispatch::Arguments out;
    out.x = a.x;
    out.routes = {.ids = a.topk_ids.data,
                  .tokens = a.topk_ids.tokens,
                  .top_k = a.topk_ids.k,
                  .token_stride = a.topk_ids.token_stride,
                  .slot_stride = a.topk_ids.slot_stride,
                  .is_64_bit = a.topk_ids.is_64_bit};
    out.w = a.w1;
    out.cols = a.cols;
    out.rank_of_expert = a.experts;
    out.out_dtype = a.out_dtype;
    out.max_tokens = a.max_tokens;
    out.max_source_tokens = a.max_source_tokens;
    out.plan_json = a.plan_json;
    out.make_results = [&a](const moe_dispatch::Problem& problem) {
      const MoeDispatchResults results = a.make_results(problem.result_rows);
      return moe_dispatch::Arguments::Results{results.y, results.origins, results.offsets};
    };
    return out;
  }
  static moe_dispatch::Problem to_problem(const Shape& s) {
    return moe_dispatch::limited_problem({.rank_of_expert = s.experts,
                                          .h = s.h,
                                          .top_k = s.k,
                                          .dtype = s.dtype,
                                          .planned_tokens = s.tokens,
                                          .cols = s.cols,
                                          .out_dtype = s.out_dtype},
                                         s.max_tokens, s.max_source_tokens);
  }
  static void settle(Arguments& arguments, const Shape& shape) {
    arguments.experts = shape.experts;
    arguments.out_dtype = shape.out_dtype;
    arguments.max_tokens = shape.max_tokens;
    arguments.max_source_tokens = shape.max_source_tokens;
  }
};

// A handle's calls bring any number of tokens.
MoeDispatchShape without_tokens(MoeDispatchShape shape) {
  shape.tokens = 0;
  return shape;
}

}  // namespace

CallReport moe_dispatch_matmul(Communicator& comm, const MoeDispatchArguments& arguments) {
  return run_op<MoeDispatchFront>(comm, arguments);
}

CallReport moe_dispatch_matmul(Communicator& comm, const MoeDispatchArguments& arguments, void* stream) {
  return run_device_op<MoeDispatchFront>(comm, arguments, stream);
}

MoeDispatchGemm::MoeDispatchGemm(Communicator& comm, const Shape& shape)
    : OpHandle(comm, without_tokens(shape), agree_op<MoeDispatchFront>(comm, without_tokens(shape))) {}

CallReport MoeDispatchGemm::operator()(const MoeDispatchArguments& arguments) const {
  return run_handle<MoeDispatchFront>(*this, arguments);
}

CallReport MoeDispatchGemm::operator()(const MoeDispatchArguments& arguments, void* stream) const {
  return run_device_handle<MoeDispatchFront>(*this, arguments, stream);
}

PlanAnswer plan_moe_dispatch_matmul(const MoeDispatchGemm::Query& query) { return plan_op<MoeDispatchFront>(query); }

}  // namespace tilewire

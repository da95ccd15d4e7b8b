// The kernel of an op that sums over ranks, for the source that builds it. Host code.
#pragma once

#include "device/tile/fused_kernel_bodies.cuh"
#include "planning/op_plans.h"
#include "reduction/reduction_kernel.cuh"
#include "reduction/tiled_plan.h"

namespace tilewire {

template <class Op>
struct ReductionKernelTypes<Op>::State {
  typename Op::Tables tables;
  typename Op::Tables::Schedule schedule;  // tables on the device; epoch 0
  ReductionKernel kernel;
  typename Op::Own own;

  State(const Problem& problem, const Plan& plan, const PlanContext& context, const DeviceRank& rank, bool is_b_n_major)
      : tables(problem, checked(plan, problem, context), context),
        schedule(tables.schedule(0)),
        kernel(entry(plan), shape(problem, schedule.me()), problem.wire_dtype, is_b_n_major, rank, tables.ctas()) {
    const FormNumbers& form = kernel.form();
    const WorkSize size{static_cast<int32_t>(form.work_rows()), static_cast<int32_t>(form.work_cols())};
    const ReductionWorkLists works = Op::works(schedule, size);
    kernel.place(schedule, Op::source_slots(schedule), schedule.sums(), works);
    own.place(kernel.device(), schedule);
    kernel.device().upload();
  }

  static const Plan& checked(const Plan& plan, const Problem& problem, const PlanContext& context) {
    check_choice(plan, problem, context);
    return plan;
  }
  static const FormEntry& entry(const Plan& plan) {
    return Op::entries()[static_cast<size_t>(form_of(plan) - Plan::kForms.data())];
  }
  static ReductionKernelShape shape(const Problem& p, Rank me) {
    return {.op = Op::kName,
            .rows = p.total_rows(),
            .result_rows = p.result_rows(me),
            .n = p.n,
            .k = p.k,
            .type = p.dtype,
            .result_type = p.out_dtype};
  }

  void check(const Operands& operands) const { kernel.check(operands); }
  void place(Parameters& p, const Operands& operands) const {
    kernel.place_factors(p.a, p.b, operands);
    p.schedule = schedule;
    p.call = kernel.call();
    p.reduction = kernel.view();
    p.result = ReductionKernel::result_of(operands);
    p.stages_per_tile = kernel.stages_per_tile();
    own.give(p);
  }
  void launch(Parameters& parameters, cudaStream_t stream) const { kernel.launch(&parameters, stream); }
  const DeviceRank& rank() const { return kernel.rank(); }
  int32_t ctas() const { return kernel.ctas(); }
  const FormNumbers& form() const { return kernel.form(); }
  int64_t bytes() const { return kernel.bytes(); }
};

}  // namespace tilewire

// The roles of GEMM+ReduceScatter: one iterator a role, pure integer logic for the host executor, the kernel and the
// simulator. They are those of a reduction; finish adds bias and residual too, and rounds.
//
// The relay role (arrivals that the proxy announces) is the same for all ops: schedule/relay_role.h.
#pragma once

#include <cstdint>

#include "ops/gemm_rs/flags.h"
#include "ops/gemm_rs/roles.h"
#include "schedule/call_roles.h"
#include "schedule/reduction_roles.h"
#include "schedule/reduction_schedule.h"

namespace tilewire::gemm_rs {

struct Schedule : ReductionSchedule {};

using ComputeWork = PartialSumWork;
using ComputeRole = PartialSumRole;
using ReduceWork = NodeSumWork;
using ReduceRole = NodeSumRole;
using SendWork = SumSendWork;
using SendRole = SumSendRole;
using FinishWork = OwnedSumWork;
using FinishRole = OwnedSumRole;
using DrainWork = ReductionDrainWork;
using DrainRole = ReductionDrainRole;

// The agents of a rank beside those of every call: visit(place, iterator) for each role of the list in roles.h and each of
// its workers. The host executor, the kernel's tests and the simulator take stages and cursors from here.
template <class Visit>
TILEWIRE_HD constexpr void for_each_role(const Schedule& s, Cursors cursors, Visit&& visit) {
  for_each_summing_role<Roles>(s, cursors, visit);
  if (s.frame.has_network()) {
    visit(Roles::place("send").with(cursors, pieces_ahead(s.map, 1, 1)), SendRole(s));
  }
  for (int32_t worker = 0; worker < s.reduce_workers; ++worker) {
    visit(Roles::place("finish").at(worker).with(cursors, pieces_ahead(s.map, 1, s.reduce_workers)),
          FinishRole(s, worker));
  }
  visit(Roles::place("drain").in_stage(kDrainStage), DrainRole(s));
}

}  // namespace tilewire::gemm_rs

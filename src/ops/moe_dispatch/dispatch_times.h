// How long the parts of a call of GPU ranks take under an even routing, for its planner. Every rank brings as many tokens
// as are planned for, and gets as many rows as it brings.
#pragma once

#include <cstdint>

#include "ops/moe_dispatch/device_plan.h"
#include "planning/plan_parts.h"

namespace tilewire::moe_dispatch {

class DispatchTimes {
 public:
  // `cols` of each weight, on so many CTAs.
  DispatchTimes(const Problem& problem, const FusedPlan& plan, const PlanContext& context, int64_t cols, int32_t ctas);

  Cost cost() const;
  double tile_s() const { return tile_s_; }  // of a cluster

 private:
  double local_bytes() const;
  double sent_tokens() const;
  double moved_first_s(double bytes) const;
  double moved_beside_s(double bytes) const;
  double linked_s(double bytes) const;
  double moved_remote_s() const;
  // Of the rows of one round, of a phase and of a piece of experts.
  double unit_s() const;

  const Problem& p_;
  const PlanChoice& c_;
  const FormNumbers& form_;
  const PlanContext& x_;
  int64_t cols_;
  int32_t clusters_;
  double width_, rows_;  // ranks of a node on the average; rows that a rank brings, and gets
  double own_experts_;   // on the average
  int32_t rounds_, phases_;
  double tile_s_;
};

}  // namespace tilewire::moe_dispatch

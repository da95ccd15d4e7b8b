// A routing to price plans with where the true one is not known yet: every expert gets as many rows as the others, and
// the experts of a token are spread over the ranks. Host only.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/moe_dispatch/plan.h"

namespace tilewire::moe_dispatch {

// Of each token of `source` its experts, by their slots: [planned tokens, k].
std::vector<int32_t> sample_routes(const Problem& problem, Rank source);
// The expert that `token` of `source` is routed to by its `slot`.
int64_t sample_expert(const Problem& problem, Rank source, int64_t token, int32_t slot);

// Schedules with that routing, for the simulator: each rank brings as many tokens as are planned for.
class SampledTables : public ScheduleTables {
 public:
  SampledTables(const Problem& problem, const PlanChoice& choice, const PlanContext& context);
  Schedule schedule(Epoch epoch) const;

 protected:
  Routing* routing_ = nullptr;

 private:
  OwnedRouting memory_;
};

}  // namespace tilewire::moe_dispatch

#include "ops/moe_dispatch/caller_routes.h"

#include <fmt/format.h>

#include "operands/matrix_checks.h"

namespace tilewire::moe_dispatch {

void RouteCopy::take(const CallerRoutes& routes, int64_t experts) {
  ids_.resize(static_cast<size_t>(routes.tokens * routes.top_k));
  tokens_ = routes.tokens;
  top_k_ = routes.top_k;
  int32_t* id = ids_.data();
  for (int64_t token = 0; token < routes.tokens; ++token) {
    for (int32_t slot = 0; slot < routes.top_k; ++slot) {
      const int64_t expert = routes.read(token, slot);
      if (expert < -1 || expert >= experts) {
        refuse_argument(kCallName, "topk_ids names an expert that is not there",
                        fmt::format("topk_ids[{}, {}] = {}", token, slot, expert),
                        fmt::format("-1 to {}, for {} experts", experts - 1, experts), "-1 is no expert");
      }
      *id++ = static_cast<int32_t>(expert);
    }
  }
}

}  // namespace tilewire::moe_dispatch

// Which warps beside the tiles of a fused kernel do what, in pure integer logic. Each role has one of them at least, and
// about as many as its part of what is read and written asks for: with two nodes of two ranks and two shots these parts are
// 3 (reduce), 6 (finish), 6 (collect) and 2 (forward). reduce has more than that, for all others wait for what it sends.
#pragma once

#include <cstdint>

#include "device/comm/device_rank.h"
#include "ops/gemm_ar/roles.h"
#include "schedule/reduction_tiles.h"

namespace tilewire::gemm_ar {

// Warps 2 and 3 of each CTA but for those that speak for the rank.
TILEWIRE_HD constexpr int32_t helpers_of(int32_t ctas) { return 2 * ctas - kRankWarps; }

class HelperDeal {
 public:
  // So many warps have a role in turn; the first four of them have all roles there are.
  static constexpr int32_t kTurn = 8;

  TILEWIRE_HD constexpr HelperDeal(bool is_one_shot, bool has_network, int32_t helpers)
      : turn_(turn_of(is_one_shot, has_network)), helpers_(helpers) {}

  TILEWIRE_HD constexpr int32_t role(int32_t helper) const { return at(helper % kTurn); }
  // Which one of those with its role it is.
  TILEWIRE_HD constexpr int32_t member(int32_t helper) const {
    return helper / kTurn * count(role(helper), kTurn) + count(role(helper), helper % kTurn);
  }
  TILEWIRE_HD constexpr int32_t members(int32_t role) const {
    return helpers_ / kTurn * count(role, kTurn) + count(role, helpers_ % kTurn);
  }
  // As many teams as every role that is dealt out to teams can have.
  TILEWIRE_HD constexpr int32_t most_teams() const {
    int32_t most = members(kFinishRole);
    for (const int32_t role : {kReduceRole, kCollectRole}) {
      const int32_t of_role = members(role);
      if (of_role > 0 && of_role < most) most = of_role;
    }
    return most;
  }
  TILEWIRE_HD constexpr SumTeam team(int32_t helper, int32_t teams) const {
    return sum_team(member(helper), members(role(helper)), teams);
  }

 private:
  TILEWIRE_HD static constexpr uint32_t turn(const int32_t (&roles)[kTurn]) {
    uint32_t packed = 0;
    for (int32_t i = 0; i < kTurn; ++i) packed |= static_cast<uint32_t>(roles[i]) << (4 * i);
    return packed;
  }
  TILEWIRE_HD static constexpr uint32_t turn_of(bool is_one_shot, bool has_network) {
    constexpr int32_t reduce = kReduceRole, forward = kForwardRole, finish = kFinishRole, collect = kCollectRole;
    if (is_one_shot && has_network) return turn({reduce, finish, forward, finish, reduce, finish, forward, finish});
    if (is_one_shot) return turn({finish, finish, finish, finish, finish, finish, finish, finish});
    if (has_network) return turn({reduce, finish, collect, forward, reduce, finish, finish, collect});
    return turn({finish, collect, finish, collect, finish, finish, collect, finish});
  }
  TILEWIRE_HD constexpr int32_t at(int32_t place) const { return static_cast<int32_t>(turn_ >> (4 * place) & 15); }
  TILEWIRE_HD constexpr int32_t count(int32_t role, int32_t places) const {
    int32_t count = 0;
    for (int32_t i = 0; i < places; ++i) count += at(i) == role ? 1 : 0;
    return count;
  }

  uint32_t turn_;
  int32_t helpers_;
};

static_assert(kCollectRole < 16 && kFinishRole < 16 && kForwardRole < 16 && kReduceRole < 16);

}  // namespace tilewire::gemm_ar

// THE roles of ring attention (schedule/role_list.h); of which iterators they are is in schedule.h.
#pragma once

#include "schedule/role_list.h"

namespace tilewire::attention {

struct Roles : RoleList<Roles> {
  static constexpr RoleEntry kAll[] = {{"none"},    {"call", Ring::call}, {"compute"}, {"load"}, {"push"},
                                       {"forward"}, {"send", Ring::send}, {"release"}, {"drain"}};
};

// Their numbers, for kernels.
inline constexpr int32_t kCallRole = Roles::number("call"), kComputeRole = Roles::number("compute"),
                         kLoadRole = Roles::number("load"), kPushRole = Roles::number("push"),
                         kForwardRole = Roles::number("forward"), kSendRole = Roles::number("send"),
                         kReleaseRole = Roles::number("release");

}  // namespace tilewire::attention

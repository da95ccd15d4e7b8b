// THE roles of MoE dispatch (schedule/role_list.h); of which iterators they are is in schedule.h.
#pragma once

#include "schedule/role_list.h"

namespace tilewire::moe_dispatch {

struct Roles : RoleList<Roles> {
  static constexpr RoleEntry kAll[] = {{"none"},    {"call", Ring::call}, {"count"},   {"route"},   {"push"}, {"pack"},
                                       {"compute"}, {"send", Ring::send}, {"forward"}, {"release"}, {"drain"}};
};

}  // namespace tilewire::moe_dispatch

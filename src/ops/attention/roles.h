// THE roles of ring attention (schedule/role_list.h); of which iterators they are is in schedule.h.
#pragma once

#include "schedule/role_list.h"

namespace tilewire::attention {

struct Roles : RoleList<Roles> {
  static constexpr RoleEntry kAll[] = {{"none"},    {"call", Ring::call}, {"compute"}, {"load"}, {"push"},
                                       {"forward"}, {"send", Ring::send}, {"release"}, {"drain"}};
};

}  // namespace tilewire::attention

// THE roles of GEMM+AllReduce, in both forms (schedule/role_list.h); of which iterators they are is in schedule.h.
#pragma once

#include <cstdint>

#include "schedule/role_list.h"

namespace tilewire::gemm_ar {

struct Roles : RoleList<Roles> {
  static constexpr RoleEntry kAll[] = {{"none"},    {"call", Ring::call}, {"compute"}, {"reduce"}, {"send", Ring::send},
                                       {"forward"}, {"finish"},           {"collect"}, {"drain"}};
};

}  // namespace tilewire::gemm_ar

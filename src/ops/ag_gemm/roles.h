// THE roles of AllGather+GEMM (schedule/role_list.h); of which iterators they are is in schedule.h.
#pragma once

#include <cstdint>

#include "schedule/role_list.h"

namespace tilewire::ag_gemm {

struct Roles : RoleList<Roles> {
  static constexpr RoleEntry kAll[] = {{"none"},    {"call", Ring::call}, {"compute"}, {"push"},
                                       {"forward"}, {"send", Ring::send}, {"drain"}};
};

// As the kernel has them.
constexpr int32_t kCallRole = Roles::number("call");
constexpr int32_t kComputeRole = Roles::number("compute");
constexpr int32_t kPushRole = Roles::number("push");
constexpr int32_t kForwardRole = Roles::number("forward");
constexpr int32_t kSendRole = Roles::number("send");

}  // namespace tilewire::ag_gemm

// THE roles of GEMM+AllReduce, in both forms (schedule/role_list.h); of which iterators they are is in schedule.h.
#pragma once

#include <cstdint>

#include "schedule/role_list.h"

namespace tilewire::gemm_ar {

struct Roles : RoleList<Roles> {
  static constexpr RoleEntry kAll[] = {{"none"},    {"call", Ring::call}, {"compute"}, {"reduce"}, {"send", Ring::send},
                                       {"forward"}, {"finish"},           {"collect"}, {"drain"}};
};

constexpr int32_t kCallRole = Roles::number("call");
constexpr int32_t kComputeRole = Roles::number("compute");
constexpr int32_t kReduceRole = Roles::number("reduce");
constexpr int32_t kSendRole = Roles::number("send");
constexpr int32_t kForwardRole = Roles::number("forward");
constexpr int32_t kFinishRole = Roles::number("finish");
constexpr int32_t kCollectRole = Roles::number("collect");

}  // namespace tilewire::gemm_ar

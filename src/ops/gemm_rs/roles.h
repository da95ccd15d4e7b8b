// THE roles of GEMM+ReduceScatter (schedule/role_list.h); of which iterators they are is in schedule.h.
#pragma once

#include <cstdint>

#include "schedule/role_list.h"

namespace tilewire::gemm_rs {

struct Roles : RoleList<Roles> {
  static constexpr RoleEntry kAll[] = {{"none"},   {"call", Ring::call}, {"compute"}, {"reduce"},
                                       {"finish"}, {"send", Ring::send}, {"drain"}};
};

// As the kernel has them.
constexpr int32_t kCallRole = Roles::number("call");
constexpr int32_t kComputeRole = Roles::number("compute");
constexpr int32_t kReduceRole = Roles::number("reduce");
constexpr int32_t kFinishRole = Roles::number("finish");
constexpr int32_t kSendRole = Roles::number("send");

}  // namespace tilewire::gemm_rs

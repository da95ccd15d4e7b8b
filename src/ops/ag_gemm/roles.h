// The roles of the fused kernel as its fault records number them.
#pragma once

#include <cstdint>

namespace tilewire::ag_gemm {

constexpr int32_t kCallRole = 1, kComputeRole = 2, kPushRole = 3, kForwardRole = 4, kSendRole = 5;
constexpr const char* kRoleNames[] = {"none", "call", "compute", "push", "forward", "send"};

}  // namespace tilewire::ag_gemm

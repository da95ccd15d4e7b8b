// The roles of the fused kernel as its fault records number them.
#pragma once

#include <cstdint>

namespace tilewire::gemm_rs {

constexpr int32_t kCallRole = 1, kComputeRole = 2, kReduceRole = 3, kFinishRole = 4, kSendRole = 5;
constexpr const char* kRoleNames[] = {"none", "call", "compute", "reduce", "finish", "send"};

}  // namespace tilewire::gemm_rs

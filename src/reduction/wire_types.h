// What is rounded on the way of a matrix that is summed over ranks.
#pragma once

#include <tilewire/data_type.h>

namespace tilewire {

// What partial sums and the sums of a node are rounded to on their way.
struct WireTypes {
  DataType partial = DataType::bf16;
  DataType node_sum = DataType::bf16;

  friend bool operator==(const WireTypes&, const WireTypes&) = default;
};
// A sum of several fp16 numbers may be too large for fp16, so node sums are fp32 then.
constexpr WireTypes wire_types(DataType wire) { return {wire, wire == DataType::bf16 ? wire : DataType::fp32}; }

}  // namespace tilewire

#include "arithmetic/slot_sum.h"

#include "arithmetic/host_number.h"
#include "base/check.h"

namespace tilewire {

void SlotSum::add_up(std::span<const SlotRows> slots, int64_t row, std::span<float> sum) {
  TILEWIRE_CHECK(!slots.empty(), ErrorKind::internal, "a sum of no slots, row {}", row);
  const auto cols = static_cast<int64_t>(sum.size());
  to_fp32({slots[0].row(row), slots[0].type}, cols, sum.data());
  widened_.resize(sum.size());
  for (const SlotRows& slot : slots.subspan(1)) {
    to_fp32({slot.row(row), slot.type}, cols, widened_.data());
    add(widened_.data(), sum);
  }
}

void SlotSum::add(const float* values, std::span<float> sum) {
  float* __restrict to = sum.data();
  const float* __restrict from = values;
  for (size_t c = 0; c < sum.size(); ++c) to[c] += from[c];
}

void SlotSum::round(DataType type, std::span<float> sum) {
  if (type == DataType::fp32) return;
  const auto cols = static_cast<int64_t>(sum.size());
  rounded_.resize(sum.size() * static_cast<size_t>(size_bytes(type)));
  from_fp32(sum.data(), cols, {rounded_.data(), type});
  to_fp32({rounded_.data(), type}, cols, sum.data());
}

}  // namespace tilewire

// Sums in fp32 of rows that lie in slots, one a source, in the order of the slots: the same bits whatever the timing.
#pragma once

#include <tilewire/data_type.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilewire {

// Rows of contiguous elements, a pitch apart.
struct SlotRows {
  const std::byte* base = nullptr;
  int64_t pitch_bytes = 0;
  DataType type = DataType::fp32;

  const std::byte* row(int64_t i) const { return base + i * pitch_bytes; }
};

// The working memory of one thread.
class SlotSum {
 public:
  // sum[c] = slot 0 + slot 1 + ... of that row, each widened to fp32 and added from the left; one slot is copied, so
  // that a -0.0 stays one. At least one slot.
  void add_up(std::span<const SlotRows> slots, int64_t row, std::span<float> sum);
  // sum[c] += values[c]
  void add(const float* values, std::span<float> sum);
  // Each element as `type` would hold it.
  void round(DataType type, std::span<float> sum);

 private:
  std::vector<float> widened_;
  std::vector<std::byte> rounded_;
};

}  // namespace tilewire

// The forms in which attention is computed, and all numbers that follow from a form.
//
// A CTA has a warpgroup that loads and has warps to spare, and kGroups that compute, each 64 rows of one tile of queries
// against kStep keys at a time.
#pragma once

#include <cstdint>

namespace tilewire {

struct AttentionWide128x128 {
  static constexpr const char* kName = "attention_wide_128x128";
  static constexpr int32_t kHeadDim = 128, kGroups = 2, kStep = 128, kStages = 2;
  static constexpr int32_t kLoaderRegisters = 88, kComputeRegisters = 208;
};

struct AttentionNarrow192x96 {
  static constexpr const char* kName = "attention_narrow_192x96";
  static constexpr int32_t kHeadDim = 64, kGroups = 3, kStep = 96, kStages = 2;
  static constexpr int32_t kLoaderRegisters = 80, kComputeRegisters = 144;
};

// Shared memory: two tiles of queries | stages of keys | stages of values | room for who works beside | barriers | notes |
// what the loader keeps of where its steps come from | what masks keep of a tile.
// A result goes where its queries were. Tiles and stages lie in panels of 64 columns, a swizzled line of 128 bytes each.
template <class Form>
struct AttentionPlan {
  static constexpr int32_t kThreads = 128 * (1 + Form::kGroups), kRows = 64 * Form::kGroups;
  static constexpr int32_t kLineBytes = 128, kPanels = Form::kHeadDim / 64, kQueries = 2;
  static constexpr int32_t kQueryPanelBytes = kRows * kLineBytes, kQueryBytes = kPanels * kQueryPanelBytes;
  static constexpr int32_t kStepPanelBytes = Form::kStep * kLineBytes, kStepBytes = kPanels * kStepPanelBytes;
  static constexpr int32_t kKeyOffset = kQueries * kQueryBytes, kValueOffset = kKeyOffset + Form::kStages * kStepBytes;
  static constexpr int32_t kSpareOffset = kValueOffset + Form::kStages * kStepBytes,
                           kSpareBytes = 2 * (8192 + 128) + 128;
  static constexpr int32_t kBarrierBytes = 16 * Form::kStages;
  static constexpr int32_t kBarrierOffset = kSpareOffset + kSpareBytes;
  static constexpr int32_t kNoteBytes = 16, kNoteOffset = kBarrierOffset + 2 * kBarrierBytes + 16 * kQueries;
  static constexpr int32_t kFeederOffset = kNoteOffset + kNoteBytes * (Form::kStages + kQueries + 2),
                           kFeederBytes = 2048;
  static constexpr int32_t kMaskOffset = kFeederOffset + kFeederBytes, kMaskBytes = 256;  // of each computing warp
  static constexpr int32_t kSharedBytes = kMaskOffset + 4 * Form::kGroups * kMaskBytes;
  static_assert(kStepPanelBytes % 1024 == 0 && kNoteOffset % kNoteBytes == 0 && kSharedBytes <= 232448);
};

// Of a form, for host code that has its type no more.
struct AttentionForm {
  const char* name;
  int32_t head_dim, rows, step, threads, shared_bytes;
};

template <class Form>
constexpr AttentionForm attention_form() {
  using Plan = AttentionPlan<Form>;
  return {Form::kName, Form::kHeadDim, Plan::kRows, Form::kStep, Plan::kThreads, Plan::kSharedBytes};
}

}  // namespace tilewire

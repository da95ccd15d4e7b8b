#include "device/tile/tensor_map.cuh"

#include "device/cuda_check.cuh"

#include <tilewire/error.h>

#include <string>

namespace tilewire {

namespace {

constexpr int64_t kCopyAlignmentBytes = 16;
constexpr int64_t kMaxExtent = int64_t{1} << 31;
constexpr int kDriverVersion = 12000;  // the first whose encoder knows everything asked for here

using Encoder = decltype(&cuTensorMapEncodeTiled);

// Through the runtime, so that nothing links against the driver.
Encoder find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check_cuda(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kDriverVersion, cudaEnableDefault, &result),
      "looking up cuTensorMapEncodeTiled");
  if (result != cudaDriverEntryPointSuccess || function == nullptr) {
    throw Error(ErrorKind::unavailable,
                {.what = "the CUDA driver has no cuTensorMapEncodeTiled", .limit = "a driver for CUDA 12.0 or newer"});
  }
  return reinterpret_cast<Encoder>(function);
}

CUtensorMapDataType element_type(DataType type) {
  if (type == DataType::fp32) return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return type == DataType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

// Dimensions past the second are one of a box.
template <int kDimensions>
CUtensorMap encode(const char* name, void* data, DataType type, const cuuint64_t (&extent)[kDimensions],
                   const cuuint64_t (&pitch)[kDimensions - 1], TensorBox box) {
  static const Encoder encoder = find_encoder();
  cuuint32_t size[kDimensions] = {static_cast<cuuint32_t>(box.cols), static_cast<cuuint32_t>(box.rows)};
  cuuint32_t stride[kDimensions] = {1, 1};
  for (int d = 2; d < kDimensions; ++d) size[d] = stride[d] = 1;
  const auto swizzle = !box.is_swizzled                     ? CU_TENSOR_MAP_SWIZZLE_NONE
                       : box.cols * size_bytes(type) == 128 ? CU_TENSOR_MAP_SWIZZLE_128B
                                                            : CU_TENSOR_MAP_SWIZZLE_64B;
  CUtensorMap map;
  const CUresult result =
      encoder(&map, element_type(type), kDimensions, data, extent, pitch, size, stride, CU_TENSOR_MAP_INTERLEAVE_NONE,
              swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorKind::internal, {.what = std::string("the driver refused the tensor map of ") + name,
                                      .values = "error " + std::to_string(static_cast<int>(result)) + ", rows = " +
                                                std::to_string(extent[1]) + ", cols = " + std::to_string(extent[0])});
  }
  return map;
}

}  // namespace

void check_copyable(const char* name, const DeviceMatrix& m) {
  const auto fail = [&](const std::string& what, const std::string& values, const std::string& limit) {
    throw Error(ErrorKind::invalid_argument, {.what = std::string(name) + what, .values = values, .limit = limit});
  };
  if (m.rows < 1 || m.cols < 1 || m.rows >= kMaxExtent || m.cols >= kMaxExtent) {
    fail(" has a size that a tensor map cannot have",
         "rows = " + std::to_string(m.rows) + ", cols = " + std::to_string(m.cols), "1 to 2^31 - 1");
  }
  if (reinterpret_cast<uintptr_t>(m.data) % kCopyAlignmentBytes != 0) {
    fail(" is misaligned", "address % 16 = " + std::to_string(reinterpret_cast<uintptr_t>(m.data) % 16),
         "a multiple of 16 bytes");
  }
  if (m.pitch_bytes % kCopyAlignmentBytes != 0 || m.pitch_bytes < m.cols * size_bytes(m.type)) {
    fail(" has a pitch that the copy engine cannot follow", "pitch_bytes = " + std::to_string(m.pitch_bytes),
         "a multiple of 16, and no shorter than a row");
  }
}

CUtensorMap encode_tensor_map(const char* name, const DeviceMatrix& matrix, TensorBox box) {
  check_copyable(name, matrix);
  const cuuint64_t extent[2] = {static_cast<cuuint64_t>(matrix.cols), static_cast<cuuint64_t>(matrix.rows)};
  const cuuint64_t pitch[1] = {static_cast<cuuint64_t>(matrix.pitch_bytes)};
  return encode<2>(name, const_cast<void*>(matrix.data), matrix.type, extent, pitch, box);
}

namespace {

int64_t bytes_of(const HeadsView& h, int64_t elements) { return elements * size_bytes(h.dtype); }
// Of rows, heads and batch entries. Of each there may be one, whose stride counts for nothing.
int64_t row_pitch(const HeadsView& h) {
  return h.rows == 1 ? (bytes_of(h, h.dim) + kCopyAlignmentBytes - 1) / kCopyAlignmentBytes * kCopyAlignmentBytes
                     : bytes_of(h, h.row_stride);
}
int64_t pitch_of(const HeadsView& h, int64_t count, int64_t stride) {
  return count == 1 ? row_pitch(h) : bytes_of(h, stride);
}

}  // namespace

void check_copyable(const char* name, const HeadsView& h) {
  const auto fail = [&](const std::string& what, int64_t stride, const char* limit) {
    throw Error(ErrorKind::invalid_argument, {.what = std::string(name) + what,
                                              .values = "a stride of " + std::to_string(stride) + " elements",
                                              .limit = limit,
                                              .advice = "copy it into contiguous memory"});
  };
  if (h.dim > 1 && h.dim_stride != 1) fail(" has columns that a kernel cannot follow", h.dim_stride, "1");
  check_copyable(name, DeviceMatrix{h.data, h.rows, h.dim, row_pitch(h), h.dtype});
  const auto check = [&](const char* what, int64_t count, int64_t stride) {
    const int64_t bytes = pitch_of(h, count, stride);
    if (bytes > 0 && bytes % kCopyAlignmentBytes == 0) return;
    fail(std::string(" has ") + what + " that the copy engine cannot follow", stride, "a multiple of 16 bytes");
  };
  check("heads", h.heads, h.head_stride);
  check("batch entries", h.batch, h.batch_stride);
}

CUtensorMap encode_heads_map(const char* name, const HeadsView& h, TensorBox box) {
  check_copyable(name, h);
  const cuuint64_t extent[4] = {static_cast<cuuint64_t>(h.dim), static_cast<cuuint64_t>(h.rows),
                                static_cast<cuuint64_t>(h.heads), static_cast<cuuint64_t>(h.batch)};
  const cuuint64_t pitch[3] = {static_cast<cuuint64_t>(row_pitch(h)),
                               static_cast<cuuint64_t>(pitch_of(h, h.heads, h.head_stride)),
                               static_cast<cuuint64_t>(pitch_of(h, h.batch, h.batch_stride))};
  return encode<4>(name, h.data, h.dtype, extent, pitch, box);
}

CUtensorMap encode_slot_map(const char* name, const SlotArray& slots, TensorBox box) {
  const cuuint64_t extent[3] = {static_cast<cuuint64_t>(slots.cols), static_cast<cuuint64_t>(slots.rows),
                                static_cast<cuuint64_t>(slots.slots)};
  const cuuint64_t pitch[2] = {static_cast<cuuint64_t>(slots.pitch_bytes), static_cast<cuuint64_t>(slots.slot_bytes)};
  return encode<3>(name, slots.data, slots.type, extent, pitch, box);
}

}  // namespace tilewire

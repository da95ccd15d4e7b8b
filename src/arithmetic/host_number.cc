#include "arithmetic/host_number.h"

#include <bit>

#include "arithmetic/number_bits.h"
#include "base/check.h"

namespace tilewire {
namespace {

// `kOne` is a template argument so that it is inlined. The loop exists for contiguous elements too: that one the
// compiler turns into vector code.
template <auto kOne, class In, class Out>
void convert(const In* __restrict in, int64_t in_stride, int64_t count, Out* __restrict out, int64_t out_stride) {
  if (in_stride == 1 && out_stride == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = kOne(in[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) out[i * out_stride] = kOne(in[i * in_stride]);
  }
}

// The bits of an fp32 that is only copied: a quiet NaN comes out where a signalling one went in, as from the 16-bit
// types.
float quiet(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(bits | ((bits & 0x7fffffff) > kFp32Infinity ? kFp32QuietBit : 0));
}

}  // namespace

void to_fp32(ConstElements in, int64_t count, float* out) {
  switch (in.type) {
    case DataType::bf16:
      return convert<bf16_bits_to_fp32>(static_cast<const uint16_t*>(in.data), in.stride, count, out, 1);
    case DataType::fp16:
      return convert<fp16_bits_to_fp32>(static_cast<const uint16_t*>(in.data), in.stride, count, out, 1);
    case DataType::fp32: return convert<quiet>(static_cast<const float*>(in.data), in.stride, count, out, 1);
  }
  TILEWIRE_UNREACHABLE("no such element type");
}

void from_fp32(const float* in, int64_t count, Elements out) {
  switch (out.type) {
    case DataType::bf16: return convert<fp32_to_bf16_bits>(in, 1, count, static_cast<uint16_t*>(out.data), out.stride);
    case DataType::fp16: return convert<fp32_to_fp16_bits>(in, 1, count, static_cast<uint16_t*>(out.data), out.stride);
    case DataType::fp32: return convert<quiet>(in, 1, count, static_cast<float*>(out.data), out.stride);
  }
  TILEWIRE_UNREACHABLE("no such element type");
}

float bf16_to_fp32(uint16_t bits) { return bf16_bits_to_fp32(bits); }
float fp16_to_fp32(uint16_t bits) { return fp16_bits_to_fp32(bits); }
uint16_t fp32_to_bf16(float value) { return fp32_to_bf16_bits(value); }
uint16_t fp32_to_fp16(float value) { return fp32_to_fp16_bits(value); }

}  // namespace tilewire

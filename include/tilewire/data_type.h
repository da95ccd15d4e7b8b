// The element types that an operation takes and gives. All arithmetic accumulates in fp32.
#pragma once

#include <tilewire/export.h>

#include <cstdint>
#include <string_view>

namespace tilewire {

enum class DataType : uint8_t {
  bf16,  // bfloat16: the upper half of an fp32
  fp16,  // IEEE 754 binary16
  fp32,  // IEEE 754 binary32
};

// Bytes of one element.
constexpr int64_t size_bytes(DataType type) { return type == DataType::fp32 ? 4 : 2; }

// "bf16", "fp16" or "fp32".
TILEWIRE_API const char* to_string(DataType type);

// Reads what to_string gives, and the names "bfloat16", "float16" and "float32". Throws Error(invalid_argument) for any
// other word.
TILEWIRE_API DataType parse_data_type(std::string_view text);

}  // namespace tilewire

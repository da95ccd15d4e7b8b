#include <fmt/format.h>
#include <tilewire/data_type.h>
#include <tilewire/error.h>

namespace tilewire {

const char* to_string(DataType type) {
  switch (type) {
    case DataType::bf16: return "bf16";
    case DataType::fp16: return "fp16";
    case DataType::fp32: return "fp32";
  }
  return "unknown";
}

DataType parse_data_type(std::string_view text) {
  if (text == "bf16" || text == "bfloat16") return DataType::bf16;
  if (text == "fp16" || text == "float16") return DataType::fp16;
  if (text == "fp32" || text == "float32") return DataType::fp32;
  throw Error(ErrorKind::invalid_argument, {.what = "unknown element type",
                                            .values = fmt::format("type = '{}'", text),
                                            .limit = "must be bf16, fp16 or fp32",
                                            .advice = "convert the tensor before the call"});
}

}  // namespace tilewire

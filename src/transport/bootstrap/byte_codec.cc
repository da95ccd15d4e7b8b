#include "transport/bootstrap/byte_codec.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <cstring>

namespace tilewire {

Bytes to_bytes(std::string_view text) {
  Bytes out(text.size());
  if (!text.empty()) std::memcpy(out.data(), text.data(), text.size());
  return out;
}

std::string to_text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

ByteWriter& ByteWriter::number(uint64_t value, int width_bytes) {
  for (int i = 0; i < width_bytes; ++i) out_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
  return *this;
}

ByteWriter& ByteWriter::raw(std::span<const std::byte> bytes) {
  out_.insert(out_.end(), bytes.data(), bytes.data() + bytes.size());
  return *this;
}

ByteWriter& ByteWriter::bytes(std::span<const std::byte> bytes) { return u64(bytes.size()).raw(bytes); }

ByteWriter& ByteWriter::text(std::string_view text) {
  return bytes(std::as_bytes(std::span(text.data(), text.size())));
}

std::span<const std::byte> ByteReader::raw(size_t size_bytes) {
  if (size_bytes > left_bytes()) {
    throw Error(ErrorKind::internal,
                {.what = fmt::format("a {} message is cut short", name_),
                 .values = fmt::format("{} bytes needed at offset {}, {} left", size_bytes, at_, left_bytes())});
  }
  const auto out = in_.subspan(at_, size_bytes);
  at_ += size_bytes;
  return out;
}

Bytes ByteReader::bytes() {
  const uint64_t size_bytes = u64();
  const auto in = raw(size_bytes);
  return Bytes(in.data(), in.data() + in.size());
}

std::string ByteReader::text() {
  const uint64_t size_bytes = u64();
  return to_text(raw(size_bytes));
}

void ByteReader::finish() const {
  if (left_bytes() == 0) return;
  throw Error(ErrorKind::internal, {.what = fmt::format("a {} message has bytes over", name_),
                                    .values = fmt::format("{} of {} bytes", left_bytes(), in_.size())});
}

uint64_t ByteReader::number(int width_bytes) {
  const auto in = raw(static_cast<size_t>(width_bytes));
  uint64_t value = 0;
  for (int i = 0; i < width_bytes; ++i) value |= static_cast<uint64_t>(in[static_cast<size_t>(i)]) << (8 * i);
  return value;
}

}  // namespace tilewire

// Little-endian packing of control messages. Used only off the data path.
//
// ByteReader checks every read against what is left and throws Error(internal) naming the message when it is cut short
// or has bytes over, so that nothing read from a socket can walk past its buffer.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewire {

using Bytes = std::vector<std::byte>;

Bytes to_bytes(std::string_view text);
std::string to_text(std::span<const std::byte> bytes);

class ByteWriter {
 public:
  ByteWriter& u8(uint8_t value) { return number(value, 1); }
  ByteWriter& u16(uint16_t value) { return number(value, 2); }
  ByteWriter& u32(uint32_t value) { return number(value, 4); }
  ByteWriter& u64(uint64_t value) { return number(value, 8); }
  ByteWriter& i32(int32_t value) { return u32(static_cast<uint32_t>(value)); }
  ByteWriter& raw(std::span<const std::byte> bytes);    // no length
  ByteWriter& bytes(std::span<const std::byte> bytes);  // u64 length, then the bytes
  ByteWriter& text(std::string_view text);              // the same

  Bytes take() { return std::move(out_); }
  const Bytes& view() const { return out_; }

 private:
  ByteWriter& number(uint64_t value, int width_bytes);

  Bytes out_;
};

class ByteReader {
 public:
  // `name` says in errors which message was malformed. The bytes must outlive the reader.
  ByteReader(std::span<const std::byte> in, std::string_view name) : in_(in), name_(name) {}

  uint8_t u8() { return static_cast<uint8_t>(number(1)); }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  int32_t i32() { return static_cast<int32_t>(u32()); }
  std::span<const std::byte> raw(size_t size_bytes);
  template <size_t kBytes>
  std::array<std::byte, kBytes> array() {
    std::array<std::byte, kBytes> out;
    const auto bytes = raw(kBytes);
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return out;
  }
  Bytes bytes();
  std::string text();

  // Throws when bytes are left over.
  void finish() const;
  size_t left_bytes() const { return in_.size() - at_; }

 private:
  uint64_t number(int width_bytes);

  std::span<const std::byte> in_;
  std::string_view name_;
  size_t at_ = 0;
};

}  // namespace tilewire

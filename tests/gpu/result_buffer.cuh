// A matrix of results in device memory, of any type: its elements as bits.
#pragma once

#include "coded_values.h"
#include "device_buffer.cuh"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tilewire {

class ResultBuffer {
 public:
  // Poisoned. One element at least, so that there is an address.
  ResultBuffer(int64_t rows, int64_t pitch, DataType type)
      : type_(type), pitch_(pitch), bytes_(std::max<int64_t>(rows * pitch, 1) * size_bytes(type)) {
    bytes_.fill_bytes(0xff);
  }

  DataType type() const { return type_; }
  int64_t pitch() const { return pitch_; }  // in elements
  std::byte* data() const { return bytes_.data(); }
  size_t bytes() const { return static_cast<size_t>(bytes_.count()); }
  void fill_bytes(int value) { bytes_.fill_bytes(value); }
  std::vector<uint32_t> to_host() const {
    const std::vector<std::byte> host = bytes_.to_host();
    return type_ == DataType::fp32 ? bits_in<uint32_t>(host) : bits_in<uint16_t>(host);
  }

 private:
  template <class Element>
  static std::vector<uint32_t> bits_in(const std::vector<std::byte>& host) {
    std::vector<uint32_t> bits(host.size() / sizeof(Element));
    for (size_t i = 0; i < bits.size(); ++i) {
      Element element;
      std::memcpy(&element, &host[i * sizeof(Element)], sizeof(Element));
      bits[i] = element;
    }
    return bits;
  }

  DataType type_;
  int64_t pitch_;
  DeviceBuffer<std::byte> bytes_;
};

}  // namespace tilewire

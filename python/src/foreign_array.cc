// Memory that Python gets to see: blocks of the arena, and arrays of other libraries that come by DLPack. numpy sees
// host memory through __array_interface__ (it takes no bfloat16 over DLPack); memory of a GPU goes by DLPack.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tilewire/communicator.h>
#include <tilewire/data_type.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "python/src/bindings.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

// Owns a piece of the arena; keeps the communicator's memory, which may be closed by then.
class ArenaBlock {
 public:
  ArenaBlock(const CommunicatorHandle& comm, int64_t bytes) : comm_(comm) {
    comm_.run("empty", [&] { data_ = comm_->allocate(bytes); });
  }
  ~ArenaBlock() {
    try {
      const nb::gil_scoped_release release;
      comm_->free(data_);
    } catch (const Error&) {
      // A forked child, or memory that went with the process: there is nobody to tell.
    }
  }
  ArenaBlock(const ArenaBlock&) = delete;
  ArenaBlock& operator=(const ArenaBlock&) = delete;
  uintptr_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  void* data() const { return data_; }
  int32_t gpu() const { return comm_->gpu(); }

 private:
  CommunicatorHandle comm_;
  void* data_ = nullptr;
};

nb::dlpack::dtype dlpack_dtype(DataType type) {
  const auto code = type == DataType::bf16 ? nb::dlpack::dtype_code::Bfloat : nb::dlpack::dtype_code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(8 * size_bytes(type)), 1};
}

// The block `owner` as a C-contiguous array in GPU memory, for libraries that take DLPack; it keeps the block.
nb::ndarray<nb::array_api> gpu_array(const nb::object& owner, const std::vector<int64_t>& shape,
                                     const std::string& dtype) {
  const auto& block = nb::cast<const ArenaBlock&>(owner);
  const std::vector<size_t> lengths(shape.begin(), shape.end());
  return nb::ndarray<nb::array_api>(block.data(), lengths.size(), lengths.data(), owner, nullptr,
                                    dlpack_dtype(parse_data_type(dtype)), nb::device::cuda::value, block.gpu());
}

// An array of another library, alive as long as this is.
class ForeignArray {
 public:
  explicit ForeignArray(nb::ndarray<nb::ro> array) : array_(std::move(array)) {}

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(array_.data()); }
  bool is_on_cpu() const { return array_.device_type() == nb::device::cpu::value; }
  // Number of the GPU in whose memory it is; -1 where that is none.
  int32_t gpu() const { return array_.device_type() == nb::device::cuda::value ? array_.device_id() : -1; }
  std::string device() const {
    switch (array_.device_type()) {
      case nb::device::cpu::value: return "cpu";
      case nb::device::cuda::value: return "cuda";
      default: return "DLPack device type " + std::to_string(array_.device_type());
    }
  }
  std::string dtype() const {
    const nb::dlpack::dtype type = array_.dtype();
    const int bits = type.bits * type.lanes;
    switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
      case nb::dlpack::dtype_code::Bfloat: return "bf" + std::to_string(bits);
      case nb::dlpack::dtype_code::Float: return "fp" + std::to_string(bits);
      case nb::dlpack::dtype_code::Int: return "int" + std::to_string(bits);
      case nb::dlpack::dtype_code::UInt: return "uint" + std::to_string(bits);
      case nb::dlpack::dtype_code::Bool: return "bool";
      case nb::dlpack::dtype_code::Complex: return "complex" + std::to_string(bits);
      default: return "DLPack type code " + std::to_string(type.code) + " of " + std::to_string(bits) + " bits";
    }
  }
  std::vector<int64_t> shape() const {
    std::vector<int64_t> out;
    for (size_t i = 0; i < array_.ndim(); ++i) out.push_back(static_cast<int64_t>(array_.shape(i)));
    return out;
  }
  std::vector<int64_t> strides() const {  // in elements
    std::vector<int64_t> out;
    for (size_t i = 0; i < array_.ndim(); ++i) out.push_back(array_.stride(i));
    return out;
  }

 private:
  nb::ndarray<nb::ro> array_;
};

}  // namespace

void add_foreign_array(nb::module_& m) {
  nb::class_<ArenaBlock>(m, "ArenaBlock")
      .def(nb::init<const CommunicatorHandle&, int64_t>(), nb::arg("comm"), nb::arg("bytes"))
      .def_prop_ro("address", &ArenaBlock::address);
  m.def("gpu_array", &gpu_array, nb::arg("block"), nb::arg("shape"), nb::arg("dtype"));
  nb::class_<ForeignArray>(m, "ForeignArray")
      .def(nb::init<nb::ndarray<nb::ro>>(), nb::arg("array"))
      .def_prop_ro("address", &ForeignArray::address)
      .def_prop_ro("is_on_cpu", &ForeignArray::is_on_cpu)
      .def_prop_ro("gpu", &ForeignArray::gpu)
      .def_prop_ro("device", &ForeignArray::device)
      .def_prop_ro("dtype", &ForeignArray::dtype)
      .def_prop_ro("shape", &ForeignArray::shape)
      .def_prop_ro("strides", &ForeignArray::strides);
}

}  // namespace tilewire

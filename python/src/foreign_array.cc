// Memory that numpy gets to see through __array_interface__: blocks of the arena, and arrays of other libraries that
// come by DLPack. (numpy itself takes no bfloat16 over DLPack.)
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tilewire/communicator.h>

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

 private:
  CommunicatorHandle comm_;
  void* data_ = nullptr;
};

// An array of another library, alive as long as this is.
class ForeignArray {
 public:
  explicit ForeignArray(nb::ndarray<nb::ro> array) : array_(std::move(array)) {}

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(array_.data()); }
  bool is_on_cpu() const { return array_.device_type() == nb::device::cpu::value; }
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
  nb::class_<ForeignArray>(m, "ForeignArray")
      .def(nb::init<nb::ndarray<nb::ro>>(), nb::arg("array"))
      .def_prop_ro("address", &ForeignArray::address)
      .def_prop_ro("is_on_cpu", &ForeignArray::is_on_cpu)
      .def_prop_ro("device", &ForeignArray::device)
      .def_prop_ro("dtype", &ForeignArray::dtype)
      .def_prop_ro("shape", &ForeignArray::shape)
      .def_prop_ro("strides", &ForeignArray::strides);
}

}  // namespace tilewire

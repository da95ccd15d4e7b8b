#include <nanobind/stl/tuple.h>
#include <tilewire/moe_dispatch_gemm.h>

#include <tuple>
#include <vector>

#include "python/src/op_binding.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

struct MoeDispatch {
  using Arguments = MoeDispatchArguments;
  using Handle = MoeDispatchGemm;
  using PythonResults = std::tuple<MatrixView, uintptr_t, uintptr_t>;  // with addresses of origins and offsets

  static constexpr const char* kName = "moe_dispatch_matmul";
  static constexpr const char* kHandle = "MoeDispatchGemm";
  static constexpr CallReport (*kCall)(Communicator&, const Arguments&) = &moe_dispatch_matmul;
  static constexpr CallReport (*kCallOn)(Communicator&, const Arguments&, void*) = &moe_dispatch_matmul;
  static constexpr auto* kPlan = &plan_moe_dispatch_matmul;

  static MoeDispatchResults to_results(const PythonResults& results) {
    const auto& [y, origins, offsets] = results;
    return {y, reinterpret_cast<int32_t*>(origins), reinterpret_cast<int64_t*>(offsets)};
  }
};

void use_ids(MoeDispatchArguments& arguments, uintptr_t address, std::pair<int64_t, int32_t> shape,
             std::pair<int64_t, int64_t> strides, bool is_64_bit) {
  arguments.topk_ids = {.data = reinterpret_cast<const void*>(address),
                        .tokens = shape.first,
                        .k = shape.second,
                        .token_stride = strides.first,
                        .slot_stride = strides.second,
                        .is_64_bit = is_64_bit};
}

}  // namespace

void add_moe_dispatch(nb::module_& m) {
  auto arguments = make_arguments<MoeDispatch>(m);
  arguments.def_rw("x", &MoeDispatchArguments::x)
      .def("use_ids", &use_ids)
      .def_rw("w1", &MoeDispatchArguments::w1)
      .def_rw("cols", &MoeDispatchArguments::cols)
      .def_rw("experts", &MoeDispatchArguments::experts)
      .def_rw("max_tokens", &MoeDispatchArguments::max_tokens, nb::arg().none())
      .def_rw("max_source_tokens", &MoeDispatchArguments::max_source_tokens, nb::arg().none());
  add_dtype(arguments, "out_dtype", &MoeDispatchArguments::out_dtype);
  auto shape = make_shape<MoeDispatch>(m);
  shape.def_rw("experts", &MoeDispatchShape::experts)
      .def_rw("h", &MoeDispatchShape::h)
      .def_rw("cols", &MoeDispatchShape::cols)
      .def_rw("k", &MoeDispatchShape::k)
      .def_rw("max_tokens", &MoeDispatchShape::max_tokens)
      .def_rw("max_source_tokens", &MoeDispatchShape::max_source_tokens, nb::arg().none())
      .def_rw("tokens", &MoeDispatchShape::tokens);
  add_dtype(shape, "dtype", &MoeDispatchShape::dtype);
  add_dtype(shape, "out_dtype", &MoeDispatchShape::out_dtype);
  add_op<MoeDispatch>(m);
}

}  // namespace tilewire

#include <tilewire/gemm_all_reduce.h>

#include <vector>

#include "python/src/weight_binding.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

struct AllReduce {
  using Arguments = GemmAllReduceArguments;
  using Handle = GemmAllReduce;
  using PythonResults = std::vector<MatrixView>;

  static constexpr const char* kName = "matmul_all_reduce";
  static constexpr const char* kHandle = "GemmAllReduce";
  static constexpr CallReport (*kCall)(Communicator&, const Arguments&) = &matmul_all_reduce;
  static constexpr CallReport (*kCallOn)(Communicator&, const Arguments&, void*) = &matmul_all_reduce;
  static constexpr auto* kPlan = &plan_matmul_all_reduce;

  static MatrixView to_results(const PythonResults& results) { return only(results); }
};

}  // namespace

void add_all_reduce(nb::module_& m) {
  auto arguments = add_arguments<AllReduce>(m);
  arguments.def_rw("residual", &GemmAllReduceArguments::residual);
  add_dtype(arguments, "wire_dtype", &GemmAllReduceArguments::wire_dtype);
  auto shape = add_shape<AllReduce>(m);
  shape.def_rw("has_bias", &GemmAllReduceShape::has_bias).def_rw("has_residual", &GemmAllReduceShape::has_residual);
  add_dtype(shape, "wire_dtype", &GemmAllReduceShape::wire_dtype);
  add_op<AllReduce>(m);
}

}  // namespace tilewire

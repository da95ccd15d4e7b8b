#include <tilewire/gemm_reduce_scatter.h>

#include <vector>

#include "python/src/weight_binding.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

struct ReduceScatter {
  using Arguments = GemmReduceScatterArguments;
  using Handle = GemmReduceScatter;
  using PythonResults = std::vector<MatrixView>;

  static constexpr const char* kName = "matmul_reduce_scatter";
  static constexpr const char* kHandle = "GemmReduceScatter";
  static constexpr CallReport (*kCall)(Communicator&, const Arguments&) = &matmul_reduce_scatter;
  static constexpr CallReport (*kCallOn)(Communicator&, const Arguments&, void*) = &matmul_reduce_scatter;
  static constexpr auto* kPlan = &plan_matmul_reduce_scatter;

  static MatrixView to_results(const PythonResults& results) { return only(results); }
};

}  // namespace

void add_reduce_scatter(nb::module_& m) {
  auto arguments = add_arguments<ReduceScatter>(m);
  arguments.def_rw("residual", &GemmReduceScatterArguments::residual);
  add_dtype(arguments, "wire_dtype", &GemmReduceScatterArguments::wire_dtype);
  auto shape = add_shape<ReduceScatter>(m);
  add_dtype(shape, "wire_dtype", &GemmReduceScatterShape::wire_dtype);
  add_op<ReduceScatter>(m);
}

}  // namespace tilewire

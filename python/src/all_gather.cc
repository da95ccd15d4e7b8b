#include <tilewire/all_gather_gemm.h>

#include <optional>
#include <utility>
#include <vector>

#include "python/src/weight_binding.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

struct AllGather {
  using Arguments = AllGatherGemmArguments;
  using Handle = AllGatherGemm;
  using PythonResults = std::pair<std::vector<MatrixView>, std::optional<MatrixView>>;

  static constexpr const char* kName = "all_gather_matmul";
  static constexpr const char* kHandle = "AllGatherGemm";
  static constexpr CallReport (*kCall)(Communicator&, const Arguments&) = &all_gather_matmul;
  static constexpr CallReport (*kCallOn)(Communicator&, const Arguments&, void*) = &all_gather_matmul;
  static constexpr auto* kPlan = &plan_all_gather_matmul;

  static AllGatherGemmResults to_results(const PythonResults& results) {
    return {results.first, results.second.value_or(MatrixView{})};
  }
};

}  // namespace

void add_all_gather(nb::module_& m) {
  add_arguments<AllGather>(m).def_rw("return_gathered", &AllGatherGemmArguments::return_gathered);
  add_shape<AllGather>(m).def_rw("return_gathered", &AllGatherGemmShape::return_gathered);
  add_op<AllGather>(m);
}

}  // namespace tilewire

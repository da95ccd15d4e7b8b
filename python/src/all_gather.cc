#include <tilewire/all_gather_gemm.h>

#include <optional>
#include <utility>
#include <vector>

#include "python/src/op_binding.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

struct AllGather {
  using Arguments = AllGatherGemmArguments;
  using Handle = AllGatherGemm;
  using PythonResults = std::pair<std::vector<MatrixView>, std::optional<MatrixView>>;

  static constexpr const char* kCall = "all_gather_matmul";
  static constexpr const char* kPlan = "plan_all_gather_matmul";
  static constexpr const char* kHandle = "AllGatherGemm";
  static constexpr const char* kQuery = "AllGatherGemmQuery";

  static CallReport call(Communicator& comm, const Arguments& arguments) { return all_gather_matmul(comm, arguments); }
  static PlanAnswer plan(const Handle::Query& query) { return plan_all_gather_matmul(query); }
  static AllGatherGemmResults to_results(const PythonResults& results) {
    return {results.first, results.second.value_or(MatrixView{})};
  }
};

}  // namespace

void add_all_gather(nb::module_& m) {
  using Arguments = AllGather::Arguments;
  nb::class_<Arguments> arguments(m, "AllGatherGemmArguments");
  arguments.def(nb::init<>())
      .def_rw("return_gathered", &Arguments::return_gathered)
      .def_rw("plan_json", &Arguments::plan_json);
  add_weights(arguments);
  add_rows(arguments);
  add_dtype(arguments, "out_dtype", &Arguments::out_dtype);

  using Shape = AllGatherGemm::Shape;
  nb::class_<Shape> shape(m, "AllGatherGemmShape");
  shape.def(nb::init<>())
      .def_rw("rows", &Shape::rows)
      .def_rw("k", &Shape::k)
      .def_rw("cols", &Shape::cols)
      .def_rw("return_gathered", &Shape::return_gathered)
      .def_rw("plan_json", &Shape::plan_json);
  add_dtype(shape, "dtype", &Shape::dtype);
  add_dtype(shape, "out_dtype", &Shape::out_dtype);

  add_op<AllGather>(m);
}

}  // namespace tilewire

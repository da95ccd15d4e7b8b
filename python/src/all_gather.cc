#include <tilewire/all_gather_gemm.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "python/src/bindings.h"
#include "python/src/interruption.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

using Results = std::pair<std::vector<MatrixView>, std::optional<MatrixView>>;

// Runs one call. `make_results(total_rows)` is Python; what it raises refuses the call and is raised here.
CallReport run_call(const std::shared_ptr<Communicator>& comm, AllGatherGemmArguments arguments,
                    const nb::callable& make_results,
                    const std::function<CallReport(const AllGatherGemmArguments&)>& call) {
  std::exception_ptr raised;
  arguments.make_results = [&](int64_t total_rows) {
    const nb::gil_scoped_acquire acquire;
    try {
      const auto [out, gathered] = nb::cast<Results>(make_results(total_rows));
      return AllGatherGemmResults{out, gathered.value_or(MatrixView{})};
    } catch (const std::exception& error) {
      raised = std::current_exception();
      throw Error(ErrorKind::invalid_argument, {.what = error.what()});
    }
  };
  CallReport report;
  try {
    run_interruptible([&] { report = call(arguments); }, [&] { comm->abort("interrupted in all_gather_matmul"); });
  } catch (const Error&) {
    if (raised) std::rethrow_exception(raised);
    throw;
  }
  return report;
}

CallReport all_gather_matmul_in_python(const CommunicatorHandle& comm, const AllGatherGemmArguments& arguments,
                                       const nb::callable& make_results) {
  return run_call(comm.shared(), arguments, make_results,
                  [&](const AllGatherGemmArguments& complete) { return all_gather_matmul(*comm, complete); });
}

// A handle that keeps its communicator's memory.
class Handle {
 public:
  Handle(const CommunicatorHandle& comm, const AllGatherGemm::Shape& shape) : comm_(comm.shared()) {
    run_interruptible([&] { handle_.emplace(*comm_, shape); },
                      [&] { comm_->abort("interrupted in the making of a handle"); });
  }
  CallReport call(const AllGatherGemmArguments& arguments, const nb::callable& make_results) const {
    return run_call(comm_, arguments, make_results,
                    [&](const AllGatherGemmArguments& complete) { return (*handle_)(complete); });
  }
  std::string plan_json() const { return handle_->plan_json(); }
  std::string explain() const { return handle_->explain(); }

 private:
  std::shared_ptr<Communicator> comm_;
  std::optional<AllGatherGemm> handle_;
};

std::vector<uintptr_t> bias_addresses(const AllGatherGemmArguments& a) {
  std::vector<uintptr_t> out;
  for (const void* bias : a.bias) out.push_back(reinterpret_cast<uintptr_t>(bias));
  return out;
}

void set_bias_addresses(AllGatherGemmArguments& a, const std::vector<uintptr_t>& addresses) {
  a.bias.clear();
  for (const uintptr_t address : addresses) a.bias.push_back(reinterpret_cast<const void*>(address));
}

void add_arguments(nb::module_& m) {
  nb::class_<MatrixView>(m, "Matrix")
      .def(
          "__init__",
          [](MatrixView* m, uintptr_t address, std::pair<int64_t, int64_t> shape, std::pair<int64_t, int64_t> strides,
             const std::string& dtype) {
            new (m) MatrixView{.data = reinterpret_cast<void*>(address),
                               .rows = shape.first,
                               .cols = shape.second,
                               .row_stride = strides.first,
                               .col_stride = strides.second,
                               .dtype = parse_data_type(dtype)};
          },
          nb::arg("address"), nb::arg("shape"), nb::arg("strides"), nb::arg("dtype"));
  nb::class_<AllGatherGemmArguments>(m, "AllGatherGemmArguments")
      .def(nb::init<>())
      .def_rw("a", &AllGatherGemmArguments::a)
      .def_rw("b", &AllGatherGemmArguments::b)
      .def_prop_rw("bias", &bias_addresses, &set_bias_addresses)
      .def_prop_rw(
          "out_dtype", [](const AllGatherGemmArguments& a) { return std::string(to_string(a.out_dtype)); },
          [](AllGatherGemmArguments& a, const std::string& name) { a.out_dtype = parse_data_type(name); })
      .def("use_rows",
           [](AllGatherGemmArguments& a, const std::vector<int64_t>& rows) {
             a.rows = {RowCounts::From::list, rows};
           })
      .def("exchange_rows",
           [](AllGatherGemmArguments& a) {
             a.rows = {RowCounts::From::exchange, {}};
           })
      .def_rw("return_gathered", &AllGatherGemmArguments::return_gathered)
      .def_rw("plan_json", &AllGatherGemmArguments::plan_json);
}

void add_shape(nb::module_& m) {
  using Shape = AllGatherGemm::Shape;
  nb::class_<Shape>(m, "AllGatherGemmShape")
      .def(nb::init<>())
      .def_rw("rows", &Shape::rows)
      .def_rw("k", &Shape::k)
      .def_rw("cols", &Shape::cols)
      .def_prop_rw(
          "dtype", [](const Shape& s) { return std::string(to_string(s.dtype)); },
          [](Shape& s, const std::string& name) { s.dtype = parse_data_type(name); })
      .def_prop_rw(
          "out_dtype", [](const Shape& s) { return std::string(to_string(s.out_dtype)); },
          [](Shape& s, const std::string& name) { s.out_dtype = parse_data_type(name); })
      .def_rw("return_gathered", &Shape::return_gathered)
      .def_rw("plan_json", &Shape::plan_json);
}

nb::list timeline_of(const PlanAnswer& answer) {
  nb::list rows;
  for (const WorkEvent& e : answer.timeline) rows.append(to_dict(e));
  return rows;
}

void add_plan(nb::module_& m) {
  using Query = AllGatherGemm::Query;
  nb::class_<Query>(m, "AllGatherGemmQuery")
      .def(nb::init<>())
      .def_rw("ranks_per_node", &Query::ranks_per_node)
      .def_rw("rank", &Query::rank)
      .def_rw("shape", &Query::shape)
      .def_rw("workers", &Query::workers)
      .def_rw("worker_tflops", &Query::worker_tflops)
      .def_rw("node_gb_per_s", &Query::node_gb_per_s)
      .def_rw("network_gbit_per_s", &Query::network_gbit_per_s)
      .def_rw("network_latency_us", &Query::network_latency_us)
      .def_rw("wants_timeline", &Query::wants_timeline);
  nb::class_<PlanAnswer>(m, "PlanAnswer")
      .def_ro("plan_json", &PlanAnswer::plan_json)
      .def_ro("explanation", &PlanAnswer::explanation)
      .def_ro("predicted_s", &PlanAnswer::predicted_s)
      .def_ro("compute_s", &PlanAnswer::compute_s)
      .def_ro("communication_s", &PlanAnswer::communication_s)
      .def_ro("simulated_s", &PlanAnswer::simulated_s)
      .def_prop_ro("timeline", &timeline_of);
  m.def("plan_all_gather_matmul", &plan_all_gather_matmul, nb::arg("query"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace

void add_all_gather(nb::module_& m) {
  add_arguments(m);
  add_shape(m);
  nb::class_<CallReport>(m, "CallReport")
      .def_ro("seconds", &CallReport::seconds)
      .def_ro("predicted_s", &CallReport::predicted_s)
      .def_ro("copy_bytes", &CallReport::copy_bytes)
      .def_ro("node_bytes", &CallReport::node_bytes)
      .def_ro("network_bytes", &CallReport::network_bytes)
      .def_ro("plan_json", &CallReport::plan_json);
  m.def("all_gather_matmul", &all_gather_matmul_in_python, nb::arg("comm"), nb::arg("arguments"),
        nb::arg("make_results"));
  nb::class_<Handle>(m, "AllGatherGemm")
      .def(nb::init<const CommunicatorHandle&, const AllGatherGemm::Shape&>(), nb::arg("comm"), nb::arg("shape"))
      .def("__call__", &Handle::call, nb::arg("arguments"), nb::arg("make_results"))
      .def_prop_ro("plan_json", &Handle::plan_json)
      .def("explain", &Handle::explain);
  add_plan(m);
}

}  // namespace tilewire

// What the calls and plans of all operations share in Python.
#include <nanobind/stl/map.h>

#include <new>

#include "python/src/errors.h"
#include "python/src/op_binding.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

void add_matrix(nb::module_& m) {
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
}

nb::list timeline_of(const PlanAnswer& answer) {
  nb::list rows;
  for (const WorkEvent& e : answer.timeline) rows.append(to_dict(e));
  return rows;
}

std::vector<nb::tuple> machine_rows() {
  std::vector<nb::tuple> rows;
  for (const NamedMachine& machine : machines()) {
    rows.push_back(nb::make_tuple(machine.name, machine.purpose, machine.workers, machine.numbers));
  }
  return rows;
}

void add_plan(nb::module_& m) {
  m.def("machines", &machine_rows);
  nb::class_<MachineQuery>(m, "MachineQuery")
      .def_rw("ranks_per_node", &MachineQuery::ranks_per_node)
      .def_rw("rank", &MachineQuery::rank)
      .def_rw("machine", &MachineQuery::machine)
      .def_rw("workers", &MachineQuery::workers)
      .def_rw("worker_tflops", &MachineQuery::worker_tflops)
      .def_rw("copy_gb_per_s", &MachineQuery::copy_gb_per_s)
      .def_rw("node_gb_per_s", &MachineQuery::node_gb_per_s)
      .def_rw("node_latency_us", &MachineQuery::node_latency_us)
      .def_rw("network_gbit_per_s", &MachineQuery::network_gbit_per_s)
      .def_rw("network_latency_us", &MachineQuery::network_latency_us)
      .def_rw("step_us", &MachineQuery::step_us)
      .def_rw("command_us", &MachineQuery::command_us)
      .def_rw("wants_timeline", &MachineQuery::wants_timeline);
  nb::class_<PlanAnswer>(m, "PlanAnswer")
      .def_ro("plan_json", &PlanAnswer::plan_json)
      .def_ro("explanation", &PlanAnswer::explanation)
      .def_ro("predicted_s", &PlanAnswer::predicted_s)
      .def_ro("compute_s", &PlanAnswer::compute_s)
      .def_ro("communication_s", &PlanAnswer::communication_s)
      .def_ro("simulated_s", &PlanAnswer::simulated_s)
      .def_prop_ro("timeline", &timeline_of);
}

}  // namespace

void AskingCall::run(const CommunicatorHandle& comm, const std::string& what, const std::function<void()>& work) {
  try {
    comm.run(what, work);
  } catch (const Error&) {
    if (raised_) std::rethrow_exception(raised_);
    throw;
  }
}

void AskingCall::refuse() {
  try {
    throw;
  } catch (const nb::python_error& error) {
    if (error.matches(PyExc_MemoryError)) throw std::bad_alloc();
    raised_ = std::current_exception();
    throw to_error(error);
  } catch (const std::exception& error) {
    raised_ = std::current_exception();
    throw Error(ErrorKind::invalid_argument, {.what = error.what()});
  }
}

void add_call(nb::module_& m) {
  add_matrix(m);
  nb::class_<CallReport>(m, "CallReport")
      .def_ro("seconds", &CallReport::seconds)
      .def_ro("predicted_s", &CallReport::predicted_s)
      .def_ro("copy_bytes", &CallReport::copy_bytes)
      .def_ro("node_bytes", &CallReport::node_bytes)
      .def_ro("network_bytes", &CallReport::network_bytes)
      .def_ro("plan_json", &CallReport::plan_json);
  add_plan(m);
}

}  // namespace tilewire

// How an operation is bound: its file names the fields of its arguments and its shape, describes itself by a struct B,
// and calls add_op<B>(module). B has the types
//   Arguments, Handle   of the public C++ interface; Handle has Shape and Query
//   PythonResults       what make_results gives in Python
// and the static members
//   const char *kCall, *kPlan, *kHandle, *kQuery         names in tilewire._core
//   CallReport call(Communicator&, const Arguments&)     the public call
//   PlanAnswer plan(const Query&)                        the public plan function
//   auto to_results(const PythonResults&)                what Arguments::make_results gives
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tilewire/call.h>
#include <tilewire/communicator.h>
#include <tilewire/data_type.h>
#include <tilewire/matrix.h>
#include <tilewire/plan_query.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "python/src/bindings.h"

namespace tilewire {

// Runs blocking work of `comm` that asks Python for something on its way. Ctrl-C ends the communicator on all ranks, so
// that nobody waits for this one.
class AskingCall {
 public:
  // Gives what `ask` gives. What Python raises there refuses the call, with its text, and is raised by run(). A
  // MemoryError becomes std::bad_alloc, of which the operation makes Error(resource) with the bytes.
  template <class Ask>
  auto ask(const Ask& ask) {
    const nanobind::gil_scoped_acquire acquire;
    try {
      return ask();
    } catch (const std::exception&) {
      refuse();
    }
  }
  void run(const std::shared_ptr<Communicator>& comm, const std::string& what, const std::function<void()>& work);

 private:
  [[noreturn]] void refuse();
  std::exception_ptr raised_;
};

// One call, through a handle or not. `make_results` is Python.
template <class B>
CallReport call_op(const std::shared_ptr<Communicator>& comm, typename B::Arguments arguments,
                   const nanobind::callable& make_results,
                   const std::function<CallReport(const typename B::Arguments&)>& call) {
  AskingCall asking;
  arguments.make_results = [&](auto... sizes) {
    return asking.ask([&] { return B::to_results(nanobind::cast<typename B::PythonResults>(make_results(sizes...))); });
  };
  CallReport report;
  asking.run(comm, B::kCall, [&] { report = call(arguments); });
  return report;
}

// A handle that keeps its communicator's memory.
template <class B>
class OpHandle {
 public:
  using Arguments = typename B::Arguments;

  OpHandle(const CommunicatorHandle& comm, const typename B::Handle::Shape& shape) : comm_(comm.shared()) {
    AskingCall().run(comm_, "the making of a handle", [&] { handle_.emplace(*comm_, shape); });
  }
  CallReport call(const Arguments& arguments, const nanobind::callable& make_results) const {
    return call_op<B>(comm_, arguments, make_results, [&](const Arguments& complete) { return (*handle_)(complete); });
  }
  std::string plan_json() const { return handle_->plan_json(); }
  std::string explain() const { return handle_->explain(); }

 private:
  std::shared_ptr<Communicator> comm_;
  std::optional<typename B::Handle> handle_;
};

template <class B>
void add_op(nanobind::module_& m) {
  namespace nb = nanobind;
  using Arguments = typename B::Arguments;
  using Query = typename B::Handle::Query;
  m.def(
      B::kCall,
      [](const CommunicatorHandle& comm, const Arguments& arguments, const nb::callable& make_results) {
        return call_op<B>(comm.shared(), arguments, make_results,
                          [&](const Arguments& complete) { return B::call(*comm, complete); });
      },
      nb::arg("comm"), nb::arg("arguments"), nb::arg("make_results"));
  nb::class_<OpHandle<B>>(m, B::kHandle)
      .def(nb::init<const CommunicatorHandle&, const typename B::Handle::Shape&>(), nb::arg("comm"), nb::arg("shape"))
      .def("__call__", &OpHandle<B>::call, nb::arg("arguments"), nb::arg("make_results"))
      .def_prop_ro("plan_json", &OpHandle<B>::plan_json)
      .def("explain", &OpHandle<B>::explain);
  nb::class_<Query, MachineQuery>(m, B::kQuery).def(nb::init<>()).def_rw("shape", &Query::shape);
  m.def(B::kPlan, &B::plan, nb::arg("query"), nb::call_guard<nb::gil_scoped_release>());
}

// A data type that Python sees by its name.
template <class T>
void add_dtype(nanobind::class_<T>& c, const char* name, DataType T::*member) {
  c.def_prop_rw(
      name, [member](const T& t) { return std::string(to_string(t.*member)); },
      [member](T& t, const std::string& text) { t.*member = parse_data_type(text); });
}

// `a`, weights `b` and their biases, by their addresses.
template <class T>
void add_weights(nanobind::class_<T>& c) {
  c.def_rw("a", &T::a).def_rw("b", &T::b);
  c.def_prop_rw(
      "bias",
      [](const T& t) {
        std::vector<uintptr_t> addresses;
        for (const void* bias : t.bias) addresses.push_back(reinterpret_cast<uintptr_t>(bias));
        return addresses;
      },
      [](T& t, const std::vector<uintptr_t>& addresses) {
        t.bias.clear();
        for (const uintptr_t address : addresses) t.bias.push_back(reinterpret_cast<const void*>(address));
      });
}

template <class T>
void add_rows(nanobind::class_<T>& c) {
  c.def("use_rows", [](T& t, const std::vector<int64_t>& rows) { t.rows = {RowCounts::From::list, rows}; });
  c.def("exchange_rows", [](T& t) { t.rows = {RowCounts::From::exchange, {}}; });
}

}  // namespace tilewire

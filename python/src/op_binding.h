// How an operation is bound, whatever its operands: its file describes it by a struct B, makes the classes of its arguments
// and its shape (make_arguments<B>(module), make_shape<B>(module)), adds their fields, and calls add_op<B>(module).
// weight_binding.h has the fields of operations that multiply by weights.
// B has the types
//   Arguments, Handle   of the public C++ interface; Handle is an OpHandle
//   PythonResults       what make_results gives in Python
// and the static members
//   const char* kName     of the call in tilewire._core; its plan function is plan_<kName>
//   const char* kHandle   of the handle; <kHandle>Arguments, <kHandle>Shape and <kHandle>Query belong to it
//   kCall, kCallOn, kPlan the public functions; kCallOn puts a call into a stream. Without it GPU ranks are refused by
//                         kCall
//   auto to_results(const PythonResults&)     what Arguments::make_results gives
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
#include <map>
#include <optional>
#include <string>
#include <type_traits>
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
  void run(const CommunicatorHandle& comm, const std::string& what, const std::function<void()>& work);

 private:
  [[noreturn]] void refuse();
  std::exception_ptr raised_;
};

// One call, through a handle or not. `make_results` is Python. With `results` their memory is there already: then it is
// not asked, and the call runs on the thread of Python as it is, for calls that are known to wait for nobody.
template <class B>
CallReport call_op(const CommunicatorHandle& comm, typename B::Arguments arguments,
                   const nanobind::callable& make_results, const std::optional<typename B::PythonResults>& results,
                   const std::function<CallReport(const typename B::Arguments&)>& call) {
  if (results) {
    arguments.make_results = [&](auto...) { return B::to_results(*results); };
    const nanobind::gil_scoped_release release;
    return call(arguments);
  }
  AskingCall asking;
  arguments.make_results = [&](auto... sizes) {
    return asking.ask([&] { return B::to_results(nanobind::cast<typename B::PythonResults>(make_results(sizes...))); });
  };
  CallReport report;
  asking.run(comm, B::kName, [&] { report = call(arguments); });
  return report;
}

// A cudaStream_t as Python has it: 0 is the default stream.
inline void* stream_at(uintptr_t address) { return reinterpret_cast<void*>(address); }

template <class B>
concept HasStreams = requires {
  B::kCallOn;
};

// A handle that keeps its communicator's memory.
template <class B>
class BoundHandle {
 public:
  using Arguments = typename B::Arguments;

  BoundHandle(const CommunicatorHandle& comm, const typename B::Handle::Shape& shape) : comm_(comm) {
    AskingCall().run(comm_, "the making of a handle", [&] { handle_.emplace(*comm_, shape); });
  }
  // Without a stream on CPU ranks, with one on GPU ranks.
  CallReport call(const Arguments& arguments, const nanobind::callable& make_results, std::optional<uintptr_t> stream,
                  const std::optional<typename B::PythonResults>& results) const {
    return call_op<B>(comm_, arguments, make_results, results, [&](const Arguments& complete) {
      if constexpr (HasStreams<B>) {
        if (stream) return (*handle_)(complete, stream_at(*stream));
      }
      return (*handle_)(complete);
    });
  }
  std::string plan_json() const { return handle_->plan_json(); }
  std::string explain() const { return handle_->explain(); }

 private:
  CommunicatorHandle comm_;
  std::optional<typename B::Handle> handle_;
};

// A data type that Python sees by its name.
template <class T>
void add_dtype(nanobind::class_<T>& c, const char* name, DataType T::*member) {
  c.def_prop_rw(
      name, [member](const T& t) { return std::string(to_string(t.*member)); },
      [member](T& t, const std::string& text) { t.*member = parse_data_type(text); });
}

// The same where none may be given: "".
template <class T>
void add_dtype(nanobind::class_<T>& c, const char* name, std::optional<DataType> T::*member) {
  c.def_prop_rw(
      name, [member](const T& t) { return std::string(t.*member ? to_string(*(t.*member)) : ""); },
      [member](T& t, const std::string& text) {
        t.*member = text.empty() ? std::nullopt : std::optional(parse_data_type(text));
      });
}

// How many rows each rank brings.
template <class T>
void add_rows(nanobind::class_<T>& c) {
  c.def("use_rows", [](T& t, const std::vector<int64_t>& rows) { t.rows = {RowCounts::From::list, rows}; });
  c.def("exchange_rows", [](T& t) { t.rows = {RowCounts::From::exchange, {}}; });
}

// The name of a class that belongs to an operation's handle; for each `part` of B once.
template <class B>
const char* name_of(const char* part) {
  static std::map<std::string, std::string> names;  // nanobind may keep the pointer
  return names.try_emplace(part, std::string(B::kHandle) + part).first->second.c_str();
}

// The classes of the public arguments and of the handle's shape, with what all have: a plan.
template <class B>
nanobind::class_<typename B::Arguments> make_arguments(nanobind::module_& m) {
  using Arguments = typename B::Arguments;
  nanobind::class_<Arguments> arguments(m, name_of<B>("Arguments"));
  arguments.def(nanobind::init<>()).def_rw("plan_json", &Arguments::plan_json);
  return arguments;
}
template <class B>
nanobind::class_<typename B::Handle::Shape> make_shape(nanobind::module_& m) {
  using Shape = typename B::Handle::Shape;
  nanobind::class_<Shape> shape(m, name_of<B>("Shape"));
  shape.def(nanobind::init<>()).def_rw("plan_json", &Shape::plan_json);
  return shape;
}

// The call, the handle and the plan function; after the two above.
template <class B>
void add_op(nanobind::module_& m) {
  namespace nb = nanobind;
  using Arguments = typename B::Arguments;
  using Query = typename B::Handle::Query;
  using Stream = std::optional<uintptr_t>;
  using Results = std::optional<typename B::PythonResults>;
  m.def(
      B::kName,
      [](const CommunicatorHandle& comm, const Arguments& arguments, const nb::callable& make_results, Stream stream,
         const Results& results) {
        return call_op<B>(comm, arguments, make_results, results, [&](const Arguments& complete) {
          if constexpr (HasStreams<B>) {
            if (stream) return B::kCallOn(*comm, complete, stream_at(*stream));
          }
          return B::kCall(*comm, complete);
        });
      },
      nb::arg("comm"), nb::arg("arguments"), nb::arg("make_results"), nb::arg("stream") = nb::none(),
      nb::arg("results") = nb::none());
  nb::class_<BoundHandle<B>>(m, B::kHandle)
      .def(nb::init<const CommunicatorHandle&, const typename B::Handle::Shape&>(), nb::arg("comm"), nb::arg("shape"))
      .def(
          "__call__",
          [](const BoundHandle<B>& handle, const Arguments& arguments, const nb::callable& make_results, Stream stream,
             const Results& results) { return handle.call(arguments, make_results, stream, results); },
          nb::arg("arguments"), nb::arg("make_results"), nb::arg("stream") = nb::none(),
          nb::arg("results") = nb::none())
      .def_prop_ro("plan_json", &BoundHandle<B>::plan_json)
      .def("explain", &BoundHandle<B>::explain);
  nb::class_<Query, MachineQuery>(m, name_of<B>("Query")).def(nb::init<>()).def_rw("shape", &Query::shape);
  static const std::string plan_name = std::string("plan_") + B::kName;
  m.def(plan_name.c_str(), B::kPlan, nb::arg("query"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace tilewire

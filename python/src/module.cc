// The extension module tilewire._core: the public C++ interface, thinly. What users call is in the package's Python
// files.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <tilewire/communicator.h>

#include "python/src/bindings.h"

namespace nb = nanobind;

namespace tilewire {
namespace {

// tilewire.errors holds the exception classes; it makes the one that belongs to the kind.
void raise_in_python(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    const ErrorParts& p = error.parts();
    try {
      const nb::object raised =
          nb::module_::import_("tilewire.errors")
              .attr("make_error")(to_string(error.kind()), p.what, p.where, p.values, p.limit, p.advice);
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    } catch (nb::python_error& other) {
      other.restore();  // a Ctrl-C that was pending comes out as KeyboardInterrupt
    }
  }
}

}  // namespace
}  // namespace tilewire

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // a communicator may live until the process ends
  nb::register_exception_translator(tilewire::raise_in_python);
  tilewire::add_communicator(m);
  tilewire::add_all_gather(m);
  tilewire::add_foreign_array(m);
}

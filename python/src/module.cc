// The extension module tilewire._core: the public C++ interface, thinly. What users call is in the package's Python
// files.
#include <nanobind/nanobind.h>

#include "python/src/bindings.h"
#include "python/src/errors.h"

namespace nb = nanobind;

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // a communicator may live until the process ends
  nb::register_exception_translator(tilewire::raise_in_python);
  tilewire::add_communicator(m);
  tilewire::add_foreign_array(m);
  tilewire::add_call(m);
#define TILEWIRE_ADD_OP(name) tilewire::add_##name(m);
  TILEWIRE_PYTHON_OPS(TILEWIRE_ADD_OP)
#undef TILEWIRE_ADD_OP
}

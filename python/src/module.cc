// The extension module tilewire._core: the public C++ interface, thinly. What users call is in the package's Python
// files.
#include <nanobind/nanobind.h>

#include <utility>

#include "python/src/bindings.h"
#include "python/src/errors.h"

namespace nb = nanobind;

namespace {

// What Python has made of the definition below and executed, and what nanobind does to a module that goes.
PyObject* executed = nullptr;
freefunc free_executed = nullptr;

// nanobind counts on a module having been executed when it goes. Python makes it first, and drops it when Ctrl-C was
// pressed while the library was loading.
void free_module(void* module) {
  if (module != executed) return;
  executed = nullptr;
  free_executed(module);
}

}  // namespace

NB_MODULE(core_of_nanobind, m) {
  executed = m.ptr();
  nb::set_leak_warnings(false);  // a communicator may live until the process ends
  nb::register_exception_translator(tilewire::raise_in_python);
  tilewire::add_communicator(m);
  tilewire::add_foreign_array(m);
  tilewire::add_call(m);
#define TILEWIRE_ADD_OP(name) tilewire::add_##name(m);
  TILEWIRE_PYTHON_OPS(TILEWIRE_ADD_OP)
#undef TILEWIRE_ADD_OP
}

extern "C" NB_EXPORT PyObject* PyInit__core() {
  PyObject* made = PyInit_core_of_nanobind();
  if (made != nullptr && PyObject_TypeCheck(made, &PyModuleDef_Type) != 0) {
    auto* definition = reinterpret_cast<PyModuleDef*>(made);
    if (definition->m_free != free_module) free_executed = std::exchange(definition->m_free, free_module);
  }
  return made;
}

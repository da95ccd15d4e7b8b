#include "python/src/errors.h"

#include <nanobind/stl/string.h>

#include <array>

namespace nb = nanobind;

namespace tilewire {

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

ErrorKind parse_error_kind(const std::string& text) {
  constexpr std::array kKinds{ErrorKind::mismatch,    ErrorKind::deadline, ErrorKind::peer_lost,
                              ErrorKind::aborted,     ErrorKind::refused,  ErrorKind::resource,
                              ErrorKind::unavailable, ErrorKind::closed,   ErrorKind::internal};
  for (const ErrorKind kind : kKinds) {
    if (text == to_string(kind)) return kind;
  }
  return ErrorKind::invalid_argument;
}

// Whatever it has that is no UTF-8 comes out escaped: the text of an error must not be another error.
std::string text_of(const nb::handle& object) {
  const nb::str text(object);
  const nb::object bytes = text.attr("encode")("utf-8", "backslashreplace");
  return nb::cast<nb::bytes>(bytes).c_str();
}

Error to_error(nb::handle exception) {
  const nb::object base = nb::module_::import_("tilewire.errors").attr("Error");
  if (!nb::isinstance(exception, base)) {
    const auto name = nb::cast<std::string>(exception.type().attr("__name__"));
    return {ErrorKind::invalid_argument, {.what = name + ": " + text_of(exception)}};
  }
  const auto part = [&](const char* name) { return text_of(exception.attr(name)); };
  return {
      parse_error_kind(part("kind")),
      {.what = part("what"), .where = {}, .values = part("values"), .limit = part("limit"), .advice = part("advice")}};
}

Error to_error(const nb::python_error& raised) {
#if PY_VERSION_HEX < 0x030C0000
  // What C code has raised may be a type and a text, or a type alone, where no memory was left for the exception.
  PyObject* type = raised.type().inc_ref().ptr();
  PyObject* value = raised.value().inc_ref().ptr();
  PyObject* trace = nullptr;
  PyErr_NormalizeException(&type, &value, &trace);
  const nb::object owned[] = {nb::steal(type), nb::steal(value), nb::steal(trace)};
  return to_error(owned[1]);
#else
  return to_error(raised.value());
#endif
}

}  // namespace tilewire

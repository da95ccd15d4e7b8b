// tilewire::Error as an exception of tilewire.errors, and back.
#pragma once

#include <nanobind/nanobind.h>
#include <tilewire/error.h>

#include <exception>
#include <string>

namespace tilewire {

// nanobind's translator: raises the exception that belongs to an Error; leaves others alone.
void raise_in_python(const std::exception_ptr& failure, void*);

// The kind that to_string() gives `text` for; invalid_argument for any other text.
ErrorKind parse_error_kind(const std::string& text);

// What a Python exception says. One that is none of tilewire.errors is an invalid argument. Needs the GIL.
Error to_error(nanobind::handle exception);
Error to_error(const nanobind::python_error& raised);

}  // namespace tilewire

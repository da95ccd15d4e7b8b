// Every setting of Tilewire in one struct. Defaults come from option_list.h; docs/options.md explains each one.
//
// Thread-safety: an Options is a plain value; from_environment() may run on any thread while nobody changes the
// environment.
#pragma once

#include <tilewire/export.h>
#include <tilewire/option_list.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace tilewire {

using Environment = std::map<std::string, std::string>;

struct TILEWIRE_API Options {
#define TILEWIRE_OPTION_FIELD(kind, field, value, allowed, scope, meaning) TILEWIRE_OPTION_TYPE_##kind field = value;
#define TILEWIRE_OPTION_TYPE_text std::string
#define TILEWIRE_OPTION_TYPE_secret std::string
#define TILEWIRE_OPTION_TYPE_integer int64_t
#define TILEWIRE_OPTION_TYPE_bytes int64_t
#define TILEWIRE_OPTION_TYPE_real double
  TILEWIRE_OPTION_LIST(TILEWIRE_OPTION_FIELD)
#undef TILEWIRE_OPTION_TYPE_text
#undef TILEWIRE_OPTION_TYPE_secret
#undef TILEWIRE_OPTION_TYPE_integer
#undef TILEWIRE_OPTION_TYPE_bytes
#undef TILEWIRE_OPTION_TYPE_real
#undef TILEWIRE_OPTION_FIELD

  // The defaults with the TILEWIRE_* variables of this process over them, validated. An empty variable counts as unset.
  // Throws Error(invalid_argument) for an unknown TILEWIRE_* name (with the nearest known one) or a bad value.
  static Options from_environment();

  // The same from any map of variables; names that do not begin with TILEWIRE_ are passed over.
  static Options parse(const Environment& environment);

  // Sets one option by its field name, or throws Error(invalid_argument) as parse() does.
  void set(std::string_view name, std::string_view value);

  // Text of one option by its field name; "(set)" or "" for a secret. Throws Error(invalid_argument) for no such name.
  std::string get(std::string_view name) const;

  // Throws Error(invalid_argument) when a value is out of its range or two values contradict each other.
  void validate() const;

  // One line "name=value" for each option on which all ranks must agree, in a fixed order. For comparing, and safe to
  // send: holds no secret.
  std::string agreement_text() const;

  // All options, one line each; secrets appear as "(set)".
  std::string to_text() const;
};

}  // namespace tilewire

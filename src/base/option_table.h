// The table behind Options: one row an option, made from option_list.h.
#pragma once

#include <tilewire/options.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tilewire {

enum class OptionKind { text, secret, integer, bytes, real };
enum class OptionScope { agree, own };

// What values an option may have. `text` says it in words, for errors and for the docs page.
struct Allowed {
  enum class Rule { any, range, power_of_two, multiple_of, one_of, counts, at_least_chars };
  Rule rule = Rule::any;
  long double low = 0;  // long double holds every int64_t
  long double high = 0;
  int64_t step = 1;
  std::vector<std::string> choices;
  std::string text;
};

using OptionMember = std::variant<std::string Options::*, int64_t Options::*, double Options::*>;

struct OptionInfo {
  std::string name;      // "deadline_s"
  std::string variable;  // "TILEWIRE_DEADLINE_S"
  OptionKind kind;
  OptionMember member;
  Allowed allowed;
  OptionScope scope;
  std::string meaning;
};

// All options, in the order of the list.
const std::vector<OptionInfo>& option_table();

// The row of a field name; throws Error(invalid_argument) that names the nearest known one.
const OptionInfo& find_option(std::string_view name);
// The same for a variable's name.
const OptionInfo& find_option_variable(std::string_view variable);

// Parses `value` into the option's member, or throws Error(invalid_argument) with variable, value and allowed values.
void assign_option(const OptionInfo& option, std::string_view value, Options& options);
// Throws Error(invalid_argument) when the member's value is not allowed.
void check_option(const OptionInfo& option, const Options& options);
// The member as text that assign_option() reads back to the same value. Shows secrets: for the library's own use.
std::string option_text(const OptionInfo& option, const Options& options);

}  // namespace tilewire

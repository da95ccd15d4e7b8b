#include "base/option_table.h"

#include "base/number_text.h"
#include "base/options.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <cctype>

namespace tilewire {
namespace {

using Rule = Allowed::Rule;

constexpr std::string_view kVariablePrefix = "TILEWIRE_";

Allowed range(long double low, long double high) { return {Rule::range, low, high, 1, {}, ""}; }

Allowed power_of_two(int64_t low, int64_t high) {
  return {Rule::power_of_two, static_cast<long double>(low), static_cast<long double>(high), 1, {}, ""};
}

Allowed multiple_of(int64_t step, int64_t low, int64_t high) {
  return {Rule::multiple_of, static_cast<long double>(low), static_cast<long double>(high), step, {}, ""};
}

Allowed one_of(std::string_view names) {
  Allowed allowed{Rule::one_of, 0, 0, 1, {}, ""};
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('|', begin), names.size());
    allowed.choices.emplace_back(names.substr(begin, end - begin));
    begin = end + 1;
  }
  allowed.text = fmt::format("{}", fmt::join(allowed.choices, ", "));
  return allowed;
}

Allowed counts() { return {Rule::counts, 0, 0, 1, {}, "numbers from 1, joined by commas"}; }

Allowed text_like(std::string_view description) { return {Rule::any, 0, 0, 1, {}, std::string(description)}; }

Allowed at_least_chars(int64_t n) {
  return {Rule::at_least_chars, static_cast<long double>(n), 0, 1, {}, fmt::format("at least {} characters", n)};
}

std::string number_text(OptionKind kind, long double value) {
  if (kind == OptionKind::bytes) return bytes_text(static_cast<int64_t>(value));
  if (kind == OptionKind::integer) return fmt::format("{}", static_cast<int64_t>(value));
  return fmt::format("{}", static_cast<double>(value));
}

std::string number_rule_text(OptionKind kind, const Allowed& allowed) {
  std::string ends = number_text(kind, allowed.low) + " to " + number_text(kind, allowed.high);
  if (allowed.rule == Rule::power_of_two) return "a power of two, " + ends;
  if (allowed.rule == Rule::multiple_of) return fmt::format("a multiple of {}, {}", bytes_text(allowed.step), ends);
  return ends;
}

OptionInfo row(std::string name, OptionKind kind, OptionMember member, Allowed allowed, OptionScope scope,
               std::string meaning) {
  std::string variable = std::string(kVariablePrefix) + name;
  std::transform(variable.begin(), variable.end(), variable.begin(), [](unsigned char c) { return std::toupper(c); });
  if (allowed.text.empty()) allowed.text = number_rule_text(kind, allowed);
  return {std::move(name), std::move(variable), kind, member, std::move(allowed), scope, std::move(meaning)};
}

// "1G" is a number of bytes with a unit that there is not.
std::string unit_text(const OptionInfo& option, std::string_view value) {
  return option.kind == OptionKind::bytes && !parse_bytes(value) ? ", without a unit or with KiB, MiB, GiB or TiB" : "";
}

[[noreturn]] void refuse(const OptionInfo& option, std::string_view value) {
  const std::string shown =
      option.kind == OptionKind::secret ? "what it is set to (not shown)" : fmt::format("'{}'", value);
  throw Error(ErrorKind::invalid_argument,
              {.what = fmt::format("option {} cannot be {}", option.name, shown),
               .where = "",
               .values = "",
               .limit = "allowed: " + option.allowed.text + unit_text(option, value),
               .advice = fmt::format("change {} or the option {} of the call", option.variable, option.name)});
}

bool number_allowed(const Allowed& allowed, long double value) {
  if (allowed.rule == Rule::any) return true;
  if (!(value >= allowed.low && value <= allowed.high)) return false;
  const auto whole = static_cast<int64_t>(value);
  if (allowed.rule == Rule::power_of_two) return (whole & (whole - 1)) == 0;
  if (allowed.rule == Rule::multiple_of) return whole % allowed.step == 0;
  return true;
}

bool counts_allowed(const std::string& value) {
  try {
    parse_counts(value);
    return true;
  } catch (const Error&) {
    return false;
  }
}

bool text_allowed(const Allowed& allowed, const std::string& value) {
  const bool one_line = std::none_of(value.begin(), value.end(), [](unsigned char c) { return c < 32 || c == 127; });
  switch (allowed.rule) {
    case Rule::one_of: return std::find(allowed.choices.begin(), allowed.choices.end(), value) != allowed.choices.end();
    case Rule::at_least_chars: return value.empty() || static_cast<long double>(value.size()) >= allowed.low;
    case Rule::counts: return counts_allowed(value);
    default: return one_line;
  }
}

// What a misspelt name was meant for, whether it is an option's or, in capitals, its variable's.
std::string name_advice(std::string OptionInfo::*key, std::string_view name) {
  std::string bare(name.substr(name.starts_with(kVariablePrefix) ? kVariablePrefix.size() : 0));
  std::transform(bare.begin(), bare.end(), bare.begin(), [](unsigned char c) { return std::tolower(c); });
  std::vector<std::string> known;
  for (const OptionInfo& option : option_table()) known.push_back(option.name);
  const std::string nearest = nearest_name(bare, known);
  if (nearest.empty()) return "docs/options.md lists those that there are";
  return fmt::format("the nearest known name is {}", find_option(nearest).*key);
}

const OptionInfo& find_by(std::string OptionInfo::*key, std::string_view name, std::string_view sort) {
  for (const OptionInfo& option : option_table()) {
    if (option.*key == name) return option;
  }
  throw Error(ErrorKind::invalid_argument, {.what = fmt::format("there is no {} '{}'", sort, name),
                                            .where = "",
                                            .values = "",
                                            .limit = "",
                                            .advice = name_advice(key, name)});
}

}  // namespace

const std::vector<OptionInfo>& option_table() {
#define TILEWIRE_OPTION_ROW(kind, field, value, allowed, scope, meaning) \
  row(#field, OptionKind::kind, &Options::field, allowed, OptionScope::scope, meaning),
  static const std::vector<OptionInfo> table{TILEWIRE_OPTION_LIST(TILEWIRE_OPTION_ROW)};
#undef TILEWIRE_OPTION_ROW
  return table;
}

const OptionInfo& find_option(std::string_view name) { return find_by(&OptionInfo::name, name, "option"); }

const OptionInfo& find_option_variable(std::string_view variable) {
  return find_by(&OptionInfo::variable, variable, "environment variable");
}

void assign_option(const OptionInfo& option, std::string_view value, Options& options) {
  Options changed = options;
  if (const auto* text = std::get_if<std::string Options::*>(&option.member)) {
    changed.*(*text) = std::string(value);
  } else if (const auto* real = std::get_if<double Options::*>(&option.member)) {
    const auto parsed = parse_real(value);
    if (!parsed) refuse(option, value);
    changed.*(*real) = *parsed;
  } else {
    const auto parsed = option.kind == OptionKind::bytes ? parse_bytes(value) : parse_integer(value);
    if (!parsed) refuse(option, value);
    changed.*std::get<int64_t Options::*>(option.member) = *parsed;
  }
  check_option(option, changed);
  options = std::move(changed);
}

void check_option(const OptionInfo& option, const Options& options) {
  bool good = false;
  if (const auto* text = std::get_if<std::string Options::*>(&option.member)) {
    good = text_allowed(option.allowed, options.*(*text));
  } else if (const auto* real = std::get_if<double Options::*>(&option.member)) {
    good = number_allowed(option.allowed, options.*(*real));
  } else {
    good = number_allowed(option.allowed, options.*std::get<int64_t Options::*>(option.member));
  }
  if (!good) refuse(option, option_text(option, options));
}

std::string option_text(const OptionInfo& option, const Options& options) {
  if (const auto* text = std::get_if<std::string Options::*>(&option.member)) return options.*(*text);
  if (const auto* real = std::get_if<double Options::*>(&option.member)) return fmt::format("{}", options.*(*real));
  const int64_t value = options.*std::get<int64_t Options::*>(option.member);
  return option.kind == OptionKind::bytes ? bytes_text(value) : fmt::format("{}", value);
}

}  // namespace tilewire

#include "transport/fault/fault_script.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <array>
#include <limits>
#include <string>

#include "base/number_text.h"

namespace tilewire {
namespace {

struct Grammar {
  std::string_view name;
  FaultKind kind;
  std::string_view keys;      // those it may have, each followed by a space
  std::string_view required;  // the one it must have, or ""
};

constexpr std::array kGrammars = {
    Grammar{"stall", FaultKind::stall, "after ms ", ""},
    Grammar{"full", FaultKind::full, "after times ", "times"},
    Grammar{"drop", FaultKind::drop, "peer after ", "peer"},
    Grammar{"withhold", FaultKind::withhold, "peer after ", ""},
    Grammar{"fail", FaultKind::fail, "nth data peer status ", ""},
    Grammar{"deny", FaultKind::deny, "nth peer status ", "nth"},
    Grammar{"report", FaultKind::report, "peer after status ", "peer"},
    Grammar{"tear", FaultKind::tear, "nth peer ", "nth"},
    Grammar{"delay", FaultKind::delay, "us peer ", "us"},
    Grammar{"die", FaultKind::die, "after step ", ""},
};

[[noreturn]] void refuse(std::string_view part, const std::string& what, std::string limit) {
  throw Error(ErrorKind::invalid_argument, {.what = "a fault script cannot be read: " + what,
                                            .values = fmt::format("fault = \"{}\"", part),
                                            .limit = std::move(limit)});
}

// Cuts the text up to the next `separator` off its front.
std::string_view next_part(std::string_view& text, char separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

const Grammar& find_grammar(std::string_view name, std::string_view part) {
  std::string known;
  for (const Grammar& grammar : kGrammars) {
    if (grammar.name == name) return grammar;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", grammar.name);
  }
  refuse(part, fmt::format("no fault is called \"{}\"", name), "one of " + known);
}

bool has_key(std::string_view keys, std::string_view key) {
  while (!keys.empty()) {
    if (next_part(keys, ' ') == key) return true;
  }
  return false;
}

int64_t read_number(std::string_view text, std::string_view key, std::string_view part) {
  const bool counts_from_one = key == "nth" || key == "data" || key == "step" || key == "times";
  const int64_t low = counts_from_one ? 1 : 0;
  const int64_t high = key == "peer" || key == "status" ? std::numeric_limits<int32_t>::max() : 1'000'000'000;
  const std::optional<int64_t> number = parse_integer(text);
  if (!number || *number < low || *number > high) {
    refuse(part, fmt::format("\"{}\" is no value for {}", text, key), fmt::format("a number in {}..{}", low, high));
  }
  return *number;
}

void assign(Fault& fault, std::string_view key, int64_t value) {
  if (key == "peer") {
    fault.peer = Rank{static_cast<int32_t>(value)};
  } else if (key == "status") {
    fault.status = static_cast<int32_t>(value);
  } else if (key == "ms") {
    fault.duration = std::chrono::milliseconds(value);
  } else if (key == "us") {
    fault.duration = std::chrono::microseconds(value);
  } else if (key == "after") {
    fault.after = static_cast<uint64_t>(value);
  } else {
    fault.is_of_data = key == "data";
    fault.count = static_cast<uint64_t>(value);
  }
}

Fault parse_fault(std::string_view part) {
  std::string_view rest = part;
  const Grammar& grammar = find_grammar(next_part(rest, ':'), part);
  Fault fault{.kind = grammar.kind, .peer = std::nullopt, .duration = std::nullopt};
  std::string seen;
  while (!rest.empty()) {
    std::string_view value = next_part(rest, ',');
    const std::string_view key = next_part(value, '=');
    if (!has_key(grammar.keys, key)) {
      refuse(part, fmt::format("{} has no \"{}\"", grammar.name, key), fmt::format("known: {}", grammar.keys));
    }
    if (has_key(seen, key)) refuse(part, fmt::format("{} is given twice", key), "once");
    assign(fault, key, read_number(value, key, part));
    seen += fmt::format("{} ", key);
  }
  if (grammar.kind == FaultKind::fail && has_key(seen, "nth") == has_key(seen, "data")) {
    refuse(part, "fail needs nth or data", "one of them");
  }
  if (!grammar.required.empty() && !has_key(seen, grammar.required)) {
    refuse(part, fmt::format("{} needs {}", grammar.name, grammar.required), "");
  }
  return fault;
}

}  // namespace

std::vector<Fault> parse_fault_script(std::string_view text) {
  std::vector<Fault> faults;
  while (!text.empty()) {
    const std::string_view part = next_part(text, ';');
    if (part.empty()) refuse(text, "a fault is missing", "name:key=value;name:key=value");
    faults.push_back(parse_fault(part));
  }
  return faults;
}

}  // namespace tilewire

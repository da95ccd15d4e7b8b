// The numbers of a plan as JSON, both ways, for every op. The op names each field once, in a function beside its
// Choice: for_each_field(choice, visit) calls visit(name, member, range) for each. `op` is the op's public name, as in
// errors; it stands in the field "op".
//
// Heavy to compile: for an op's plan_json.cc only.
#pragma once

#include <fmt/format.h>
#include <tilewire/error.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace tilewire {

[[noreturn]] inline void refuse_plan(const char* op, std::string what, std::string values, std::string advice = {}) {
  throw Error(ErrorKind::invalid_argument, {.what = std::move(what),
                                            .where = fmt::format("plan of {}", op),
                                            .values = std::move(values),
                                            .advice = std::move(advice)});
}

template <class T>
void read_plan_field(const char* op, const nlohmann::json& object, const char* name, T& field) {
  const auto found = object.find(name);
  if (found == object.end()) refuse_plan(op, "a field is missing", name);
  const auto text = [&] { return fmt::format("{} = {}", name, found->dump()); };
  if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) refuse_plan(op, "a field has the wrong type", text());
    field = found->template get<bool>();
  } else {
    if (!found->is_number_integer()) refuse_plan(op, "a field has the wrong type", text());
    const int64_t value = found->template get<int64_t>();
    if (!std::in_range<T>(value)) refuse_plan(op, "a field is out of range", text());
    field = static_cast<T>(value);
  }
}

template <class Choice>
std::string choice_to_json(const char* op, const Choice& choice) {
  nlohmann::ordered_json object{{"op", op}};
  for_each_field(choice, [&](const char* name, const auto& field, const auto&...) { object[name] = field; });
  return object.dump();
}

// Throws Error(invalid_argument) naming the field that is missing, unknown or out of range.
template <class Choice>
Choice choice_from_json(const char* op, const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) refuse_plan(op, "not a JSON object", text.substr(0, 80));
  if (!object.contains("op") || object["op"] != op) {
    refuse_plan(op, "not a plan of this op", fmt::format("op must be \"{}\"", op));
  }
  Choice choice;
  size_t fields = 1;
  for_each_field(choice, [&](const char* name, auto& field, const auto&...) {
    read_plan_field(op, object, name, field);
    ++fields;
  });
  if (object.size() == fields) return choice;
  for (const auto& [name, value] : object.items()) {
    bool is_known = name == "op";
    for_each_field(choice,
                   [&, &name = name](const char* known, const auto&...) { is_known = is_known || name == known; });
    if (!is_known) refuse_plan(op, "an unknown field", name, "remove it, or check its spelling");
  }
  return choice;
}

}  // namespace tilewire

#include <fmt/format.h>
#include <tilewire/error.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "ops/ag_gemm/plan.h"

namespace tilewire::ag_gemm {
namespace {

[[noreturn]] void refuse(std::string what, std::string values, std::string advice = {}) {
  throw Error(ErrorKind::invalid_argument, {.what = std::move(what),
                                            .where = "plan of all_gather_matmul",
                                            .values = std::move(values),
                                            .advice = std::move(advice)});
}

// Each field of a PlanChoice once: name and member, for reading and writing.
template <class Choice, class Visit>
void for_each_field(Choice& c, Visit&& visit) {
  visit("chunk_rows", c.chunk_rows);
  visit("is_fused", c.is_fused);
  visit("tile_rows", c.tile_rows);
  visit("tile_cols", c.tile_cols);
  visit("raster_rows", c.raster_rows);
  visit("workers", c.workers);
  visit("load_ahead", c.cursors.load_ahead);
  visit("publish_behind", c.cursors.publish_behind);
}

template <class T>
void read_field(const nlohmann::json& object, const char* name, T& field) {
  const auto found = object.find(name);
  if (found == object.end()) refuse("a field is missing", name);
  if constexpr (std::is_same_v<T, bool>) {
    if (!found->is_boolean()) refuse("a field has the wrong type", fmt::format("{} = {}", name, found->dump()));
    field = found->template get<bool>();
  } else {
    if (!found->is_number_integer()) refuse("a field has the wrong type", fmt::format("{} = {}", name, found->dump()));
    const int64_t value = found->template get<int64_t>();
    if (!std::in_range<T>(value)) refuse("a field is out of range", fmt::format("{} = {}", name, value));
    field = static_cast<T>(value);
  }
}

}  // namespace

std::string to_json(const PlanChoice& choice) {
  nlohmann::ordered_json object{{"op", "ag_gemm"}};
  for_each_field(choice, [&](const char* name, const auto& field) { object[name] = field; });
  return object.dump();
}

PlanChoice plan_from_json(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) refuse("not a JSON object", text.substr(0, 80));
  if (!object.contains("op") || object["op"] != "ag_gemm") refuse("not a plan of this op", "op must be \"ag_gemm\"");
  PlanChoice choice;
  size_t fields = 1;
  for_each_field(choice, [&](const char* name, auto& field) {
    read_field(object, name, field);
    ++fields;
  });
  if (object.size() == fields) return choice;
  for (const auto& [name, value] : object.items()) {
    bool is_known = name == "op";
    for_each_field(choice, [&](const char* known, const auto&) { is_known = is_known || name == known; });
    if (!is_known) refuse("an unknown field", name, "remove it, or check its spelling");
  }
  return choice;
}

std::string PlanChoice::text() const {
  return fmt::format(
      "{}, chunks of {} rows, tiles {} x {}, {} row blocks walked together, {} workers, load {} ahead, "
      "publish {} behind",
      is_fused ? "fused" : "gather, then multiply", chunk_rows, tile_rows, tile_cols, raster_rows, workers,
      cursors.load_ahead, cursors.publish_behind);
}

std::string Plan::explain() const {
  std::string out =
      fmt::format("{}\npredicted {:.1f} us (compute alone {:.1f}, communication alone {:.1f}); {} bytes in each half\n",
                  choice.text(), predicted_s * 1e6, compute_s * 1e6, communication_s * 1e6, half_bytes);
  for (const Candidate& c : candidates) out += fmt::format("  {}: {}\n", c.choice.text(), c.verdict);
  return out;
}

}  // namespace tilewire::ag_gemm

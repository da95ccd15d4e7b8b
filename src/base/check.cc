#include "base/check.h"

namespace tilewire::check_detail {
namespace {

std::string where(const Place& place) {
  const std::string_view file = place.file;
  const size_t slash = file.rfind('/');
  return fmt::format("{}:{}", slash == std::string_view::npos ? file : file.substr(slash + 1), place.line);
}

// "k % 8 = 4"; a literal is not repeated as "0 = 0".
std::string named(std::string_view expression, const std::string& value) {
  return expression == value ? value : fmt::format("{} = {}", expression, value);
}

}  // namespace

void raise_binary(const Place& place, ErrorKind kind, const std::string& a, const std::string& b,
                  const std::string& message) {
  const std::string note = message.empty() ? "" : fmt::format(" ({})", message);
  throw Error(kind, {.what = "",
                     .where = where(place),
                     .values = named(place.a, a),
                     .limit = fmt::format("must be {}{}{}", place.relation, named(place.b, b), note),
                     .advice = ""});
}

void raise_condition(const Place& place, ErrorKind kind, const std::string& message) {
  const std::string_view condition = place.a;
  throw Error(kind, {.what = message,
                     .where = where(place),
                     .values = "",
                     .limit = condition.empty() ? "" : fmt::format("{} must hold", condition),
                     .advice = ""});
}

}  // namespace tilewire::check_detail

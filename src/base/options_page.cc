#include "base/options_page.h"

#include "base/option_table.h"

#include <fmt/format.h>

namespace tilewire {
namespace {

constexpr const char* kIntroduction = R"(# Options

*This page is generated from `include/tilewire/option_list.h` by `scripts/generate_options_page`; do not edit it.*

An option is set by its environment variable, in C++ by the field of the same name in `tilewire::Options`, or in Python
by `tilewire.init(name=value)`. A variable that is set to nothing counts as unset. An unknown variable that
begins with `TILEWIRE_` is an error, and so is a value that is not allowed. Bytes may carry a unit: `KiB`, `MiB`, `GiB`
or `TiB`. Where *agree* is marked, all ranks must have the same value; this is compared when they connect.
`TILEWIRE_FAULT` is for tests; its words are explained in `src/transport/fault/fault_script.h`.

| variable | default | allowed | agree | meaning |
|---|---|---|---|---|
)";

std::string default_text(const OptionInfo& option) {
  const std::string text = option_text(option, Options{});
  return text.empty() ? "" : fmt::format("`{}`", text);
}

}  // namespace

std::string options_page() {
  std::string page = kIntroduction;
  for (const OptionInfo& option : option_table()) {
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", option.variable, default_text(option), option.allowed.text,
                        option.scope == OptionScope::agree ? "yes" : "", option.meaning);
  }
  return page;
}

}  // namespace tilewire

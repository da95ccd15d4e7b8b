// The docs page of the options, made from their table.
#pragma once

#include <string>

namespace tilewire {

// Markdown for docs/options.md.
std::string options_page();

}  // namespace tilewire

// Hashing and printing of the ids; host only, so that ids.h stays fit for the GPU.
#pragma once

#include "base/ids.h"

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <ostream>

template <class Tag>
struct std::hash<tilewire::Id<Tag>> {
  size_t operator()(tilewire::Id<Tag> id) const noexcept { return std::hash<int32_t>()(id.value); }
};

// An id prints as its number and takes a number's format specs.
template <class Tag>
struct fmt::formatter<tilewire::Id<Tag>> : fmt::formatter<int32_t> {
  template <class Context>
  auto format(tilewire::Id<Tag> id, Context& context) const {
    return fmt::formatter<int32_t>::format(id.value, context);
  }
};

namespace tilewire {

// For test frameworks.
template <class Tag>
std::ostream& operator<<(std::ostream& out, Id<Tag> id) {
  return out << id.value;
}

}  // namespace tilewire

// Which GPU it is, the same for all processes of a machine whatever numbers they give it: its UUID.
#pragma once

#include <array>
#include <cstddef>

namespace tilewire {

using GpuId = std::array<std::byte, 16>;

}  // namespace tilewire

// Keeping a thread near the NICs that it drives.
#pragma once

#include <string_view>
#include <vector>

namespace tilewire {

// Processors that the calling thread may run on.
std::vector<int> allowed_processors();

// Lets the calling thread run on those of `near` that it may run on now. Where there is none of them, or the system
// refuses, it stays where it is, with one warning that says why. Empty: it stays, too. True when it was moved.
bool stay_near(const std::vector<int>& near, std::string_view what) noexcept;

}  // namespace tilewire

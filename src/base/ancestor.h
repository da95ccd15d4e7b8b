// The process that has started this one, perhaps through a shell or a wrapper.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewire {

// A name for the nearest ancestor of a process that runs the program: equal in all that it has started on this machine,
// and in no other's, as it holds the time of its start beside its number. "" when there is none or it cannot be seen, as
// from inside a container. `program` as the kernel has it, 15 letters at most.
std::string ancestor_running(std::string_view program, int64_t process, const std::string& proc_folder = "/proc");

}  // namespace tilewire

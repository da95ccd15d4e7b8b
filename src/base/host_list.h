// The compressed lists in which Slurm names hosts and tasks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilewire {

// The hosts of a Slurm node list: "gpu[01-03,7],login" -> gpu01 gpu02 gpu03 gpu7 login. Throws
// Error(invalid_argument) for a malformed list or one of more than 65536 hosts.
std::vector<std::string> expand_host_list(std::string_view list);

// Slurm's tasks of each node: "2(x3),1" -> 2 2 2 1. Throws as expand_host_list does.
std::vector<int32_t> expand_tasks_per_node(std::string_view text);

}  // namespace tilewire

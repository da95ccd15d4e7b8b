#include "memory/memory_room.h"

#include <fmt/format.h>
#include <tilewire/error.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/number_text.h"

namespace tilewire {
namespace {

// Control groups without a limit say "max" or a number near 2^63.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<int64_t> read_number(const std::string& file) {
  std::ifstream in(file);
  std::string word;
  if (!(in >> word)) return std::nullopt;
  return parse_integer(word);
}

// The number behind `key` in a file of lines "key number ...".
std::optional<int64_t> read_field(const std::string& file, std::string_view key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    std::string number;
    if (words >> name >> number && name == key) return parse_integer(number);
  }
  return std::nullopt;
}

struct GroupFiles {
  const char* limit;
  const char* used;
  const char* cache;  // field of memory.stat: file pages that go first when memory is short
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

void take_lower(MemoryRoom& room, int64_t bytes, std::string limit) {
  if (bytes >= room.bytes) return;
  room.bytes = std::max<int64_t>(bytes, 0);
  room.limit = std::move(limit);
}

void look_at_machine(const std::string& proc_folder, MemoryRoom& room) {
  const std::string file = proc_folder + "/meminfo";
  const std::optional<int64_t> available_kib = read_field(file, "MemAvailable:");
  if (!available_kib) return;
  const int64_t swap_kib = read_field(file, "SwapFree:").value_or(0);
  take_lower(room, (*available_kib + swap_kib) * 1024, "MemAvailable + SwapFree of " + file);
}

void look_at_group(const std::string& folder, const GroupFiles& files, MemoryRoom& room) {
  const std::string file = fmt::format("{}/{}", folder, files.limit);
  const std::optional<int64_t> limit = read_number(file);
  const std::optional<int64_t> used = read_number(fmt::format("{}/{}", folder, files.used));
  if (!limit || !used || *limit >= kNoLimit) return;
  const int64_t cache = read_field(folder + "/memory.stat", files.cache).value_or(0);
  take_lower(room, *limit - *used + cache, fmt::format("{} = {} bytes, {} in use", file, *limit, *used));
}

// The group and its parents up to the mount. Inside a container the path may not exist, the mount itself does.
void look_at_groups(const std::string& mount, std::string path, const GroupFiles& files, MemoryRoom& room) {
  while (!path.empty() && path != "/") {
    look_at_group(mount + path, files, room);
    path.erase(path.find_last_of('/'));
  }
  look_at_group(mount, files, room);
}

bool has_item(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    if (list.substr(0, comma) == item) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
  return false;
}

}  // namespace

MemoryRoom memory_room(const std::string& proc_folder, const std::string& cgroup_folder) {
  MemoryRoom room;
  look_at_machine(proc_folder, room);
  std::ifstream groups(proc_folder + "/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:memory,cpu:/path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || second + 1 >= line.size() || line[second + 1] != '/') continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) look_at_groups(cgroup_folder, path, kVersion2, room);
    if (has_item(controllers, "memory")) look_at_groups(cgroup_folder + "/memory", path, kVersion1, room);
  }
  return room;
}

void check_memory_room(int64_t bytes, const std::string& where, const MemoryRoom& room) {
  if (bytes <= room.bytes) return;
  throw Error(
      ErrorKind::resource,
      {.what = "not enough memory for the arena",
       .where = where,
       .values = fmt::format("{} more bytes asked, {} can be had", bytes, room.bytes),
       .limit = room.limit,
       .advice = "use smaller calls or fewer ranks on this machine, lower TILEWIRE_ARENA_INITIAL_BYTES, or free "
                 "memory"});
}

}  // namespace tilewire

#include "base/ancestor.h"

#include "base/number_text.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <vector>

namespace tilewire {
namespace {

constexpr int kMostAncestors = 1000;  // more than any tree of processes has, and an end where numbers come again

struct Process {
  std::string program;
  int64_t parent = 0;
  std::string started;  // in ticks since the machine's start
};

// /proc/<id>/stat: "id (program) state parent ...", where the program's name may hold blanks and brackets. The time of
// its start is the 20th field behind the name.
std::optional<Process> process_of(int64_t id, const std::string& proc_folder) {
  std::ifstream file(fmt::format("{}/{}/stat", proc_folder, id));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  std::istringstream rest(line.substr(close + 1));
  const std::vector<std::string> fields{std::istream_iterator<std::string>(rest), {}};
  if (fields.size() < 20) return std::nullopt;
  const auto parent = parse_integer(fields[1]);
  if (!parent) return std::nullopt;
  return Process{.program = line.substr(open + 1, close - open - 1), .parent = *parent, .started = fields[19]};
}

}  // namespace

std::string ancestor_running(std::string_view program, int64_t process, const std::string& proc_folder) {
  std::optional<Process> at = process_of(process, proc_folder);
  for (int i = 0; at && at->parent > 0 && i < kMostAncestors; ++i) {
    const int64_t id = at->parent;
    at = process_of(id, proc_folder);
    if (at && at->program == program) return fmt::format("{}-{}", id, at->started);
  }
  return "";
}

}  // namespace tilewire

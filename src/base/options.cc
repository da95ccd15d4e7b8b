#include "base/options.h"

#include "base/number_text.h"
#include "base/option_table.h"

#include <fmt/format.h>
#include <tilewire/error.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

namespace tilewire {
namespace {

constexpr std::string_view kPrefix = "TILEWIRE_";
constexpr int32_t kMostRanksANode = 1 << 20;
constexpr size_t kMostEdits = 3;  // of a name that is misspelt; more is another name

[[noreturn]] void contradict(std::string what, std::string values, std::string limit) {
  throw Error(ErrorKind::invalid_argument, {.what = std::move(what),
                                            .where = "options",
                                            .values = std::move(values),
                                            .limit = std::move(limit),
                                            .advice = ""});
}

void validate_ranks(const Options& o) {
  if ((o.rank < 0) != (o.world_size < 0)) {
    contradict("rank and world_size go together", fmt::format("rank = {}, world_size = {}", o.rank, o.world_size),
               "set both or neither");
  }
  if (o.world_size >= 0 && o.rank >= o.world_size) {
    contradict("rank is outside the world", fmt::format("rank = {}, world_size = {}", o.rank, o.world_size),
               "must be 0 to world_size - 1");
  }
  if (o.world_size > o.max_ranks) {
    contradict("too many ranks", fmt::format("world_size = {}, max_ranks = {}", o.world_size, o.max_ranks),
               "world_size must be at most max_ranks");
  }
  const std::vector<int32_t> counts = parse_counts(o.layout);
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (!counts.empty() && o.world_size >= 0 && sum != o.world_size) {
    contradict("layout does not add up to world_size",
               fmt::format("layout = {} (sum {}), world_size = {}", o.layout, sum, o.world_size), "must be equal");
  }
}

std::map<std::string, std::string, std::less<>> read_lines(std::string_view text) {
  std::map<std::string, std::string, std::less<>> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t equals = std::min(line.find('='), line.size());
    if (!line.empty()) lines.emplace(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

Environment process_environment() {
  Environment variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

Options Options::from_environment() { return parse(process_environment()); }

Options Options::parse(const Environment& environment) {
  Options options;
  for (auto it = environment.lower_bound(std::string(kPrefix)); it != environment.end(); ++it) {
    if (!it->first.starts_with(kPrefix)) break;
    const OptionInfo& option = find_option_variable(it->first);
    if (!it->second.empty()) assign_option(option, it->second, options);
  }
  options.validate();
  return options;
}

void Options::set(std::string_view name, std::string_view value) { assign_option(find_option(name), value, *this); }

std::string Options::get(std::string_view name) const {
  const OptionInfo& option = find_option(name);
  const std::string text = option_text(option, *this);
  return option.kind == OptionKind::secret && !text.empty() ? "(set)" : text;
}

void Options::validate() const {
  for (const OptionInfo& option : option_table()) check_option(option, *this);
  validate_ranks(*this);
  if (arena_initial_bytes > arena_reserve_bytes) {
    contradict("the arena starts larger than it may grow",
               fmt::format("arena_initial_bytes = {}, arena_reserve_bytes = {}", bytes_text(arena_initial_bytes),
                           bytes_text(arena_reserve_bytes)),
               "arena_initial_bytes must be at most arena_reserve_bytes");
  }
  if (death_s * 1000 < 2 * static_cast<double>(heartbeat_ms)) {
    contradict("one late heartbeat would count as a death",
               fmt::format("death_s = {}, heartbeat_ms = {}", death_s, heartbeat_ms),
               "death_s must be at least two heartbeats");
  }
}

std::string Options::agreement_text() const {
  std::string text;
  for (const OptionInfo& option : option_table()) {
    if (option.scope == OptionScope::agree) text += fmt::format("{}={}\n", option.name, get(option.name));
  }
  return text;
}

std::string Options::to_text() const {
  std::string text;
  for (const OptionInfo& option : option_table()) text += fmt::format("{}={}\n", option.name, get(option.name));
  return text;
}

std::string agreement_difference(std::string_view here, std::string_view there) {
  const auto mine = read_lines(here);
  const auto theirs = read_lines(there);
  auto names = mine;
  names.insert(theirs.begin(), theirs.end());
  const auto shown = [](const auto& lines, const std::string& name) {
    const auto found = lines.find(name);
    if (found == lines.end()) return std::string("unknown");
    return found->second.empty() ? std::string("unset") : found->second;
  };
  std::vector<std::string> differences;
  for (const auto& [name, value] : names) {
    const std::string a = shown(mine, name);
    const std::string b = shown(theirs, name);
    if (a != b) differences.push_back(fmt::format("{} is {} here and {} there", name, a, b));
  }
  return fmt::format("{}", fmt::join(differences, "; "));
}

std::vector<int32_t> parse_counts(std::string_view text) {
  std::vector<int32_t> counts;
  for (size_t begin = 0; begin <= text.size() && !text.empty();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto count = parse_integer(text.substr(begin, end - begin));
    if (!count || *count < 1 || *count > kMostRanksANode) {
      throw Error(ErrorKind::invalid_argument,
                  {.what = fmt::format("'{}' is no list of counts", text),
                   .where = "",
                   .values = "",
                   .limit = fmt::format("numbers from 1 to {}, joined by commas", kMostRanksANode),
                   .advice = ""});
    }
    counts.push_back(static_cast<int32_t>(*count));
    begin = end + 1;
  }
  return counts;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_edits = SIZE_MAX;
  for (const std::string& candidate : known) {
    std::vector<size_t> row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= name.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        const size_t replace = diagonal + (name[i - 1] == candidate[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({replace, row[j] + 1, row[j - 1] + 1});
      }
    }
    if (row.back() < best_edits) {
      best_edits = row.back();
      best = candidate;
    }
  }
  return best_edits <= std::min(name.size() / 2, kMostEdits) ? best : "";
}

}  // namespace tilewire
